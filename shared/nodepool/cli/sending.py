"""Sending commands about NodePools, and reporting the outcome of each."""

from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from nodepool.cli.errors import DONE, report
from nodepool.cli.output import print_error, print_text

if TYPE_CHECKING:
    from nodepool.client import Client
    from nodepool.contract.commands import ApplyNodePool, DeleteNodePool, ScaleNodePool
    from nodepool.contract.events import CommandAccepted

    PoolCommand = ApplyNodePool | ScaleNodePool | DeleteNodePool

DRY_RUN = " (dry run)"


async def send(
    client: "Client",
    commands: "Sequence[PoolCommand]",
    line: "Callable[[str, CommandAccepted], str]",
    *,
    places: Sequence[str] = (),
    ignore_missing: bool = False,
) -> tuple[int, list[str]]:
    """Sends commands; returns the exit code, and the NodePools whose command was accepted.

    line: makes the line that is printed for an accepted command from its NodePool's name.
    places: where each command is written, to begin its error with.
    ignore_missing: whether a NodePool that does not exist is no error.

    Of the commands without an outcome, only the first is reported in full: all have one cause.
    """
    from nodepool.client import ClientError, NoOutcome

    code, accepted, without_outcome = DONE, [], 0
    prefixes = iter(places or [""] * len(commands))
    async with aclosing(client.send_each(commands)) as pairs:
        async for command, outcome in pairs:
            name, prefix = command.path[2], next(prefixes)
            if not isinstance(outcome, ClientError):
                accepted.append(name)
                print_text(line(name, outcome))
                continue
            if ignore_missing and _is_not_found(outcome):
                continue
            without_outcome += isinstance(outcome, NoOutcome)
            if not isinstance(outcome, NoOutcome) or without_outcome == 1:
                code = report(outcome, f'{prefix}nodepool "{name}"')
    if without_outcome > 1:
        print_error(f"{without_outcome - 1} more commands have no outcome")
    return code, accepted


def _is_not_found(error: Exception) -> bool:
    from nodepool.client import Refused

    return isinstance(error, Refused) and error.reason == "NotFound"
