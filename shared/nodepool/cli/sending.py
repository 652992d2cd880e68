"""Sending commands about NodePools, and reporting the outcome of each."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nodepool.cli.errors import DONE, report
from nodepool.cli.in_order import in_order
from nodepool.cli.names import NODEPOOL
from nodepool.cli.options import IN_WORDS, DryRun, Output
from nodepool.cli.output import print_error
from nodepool.cli.verdicts import warn
from nodepool.contract.documents import Document

if TYPE_CHECKING:
    from nodepool.client import Client, Outcome
    from nodepool.contract.commands import ApplyNodePool, DeleteNodePool, ScaleNodePool
    from nodepool.contract.events import CommandAccepted
    from nodepool.contract.messages import Command

    PoolCommand = ApplyNodePool | ScaleNodePool | DeleteNodePool


@dataclass(frozen=True, slots=True)
class Reporting:
    """How the outcomes of commands are reported.

    line: returns the line for an accepted command, from the NodePool's name and the result.
    output: whether NodePools are printed instead of lines, and whether commands are only tried.
    places: the place of each command in its source, as a prefix for its error message.
    ignore_missing: whether NodePools that do not exist are ignored.
    """

    line: Callable[[str, str], str]
    output: Output = IN_WORDS
    places: Sequence[str] = ()
    ignore_missing: bool = False


def change_line(name: str, verb: str) -> str:
    """Return the line that reports a change, as kubectl words it."""
    return f"{NODEPOOL.full}/{name} {verb}"


async def send(
    client: "Client", commands: "Sequence[PoolCommand]", how: Reporting
) -> tuple[int, list[str]]:
    """Send commands; return the exit code, and the NodePools whose command was accepted.

    If several commands have no outcome, only the first is reported in full: all have one cause.
    """
    from nodepool.client import ClientError, NoOutcome

    code, accepted, without_outcome = DONE, [], 0
    printed: list[Document] = []
    prefixes = iter(how.places or [""] * len(commands))
    async with aclosing(_outcomes(client, commands, how.output.dry_run)) as pairs:
        async for command, outcome in pairs:
            name, prefix = command.path[2], next(prefixes)
            if not isinstance(outcome, ClientError):
                accepted.append(name)
                printed += await _report(client, command, outcome, how)
            elif not (how.ignore_missing and _is_not_found(outcome)):
                without_outcome += isinstance(outcome, NoOutcome)
                if not isinstance(outcome, NoOutcome) or without_outcome == 1:
                    code = report(outcome, f'{prefix}nodepool "{name}"')
    how.output.print_objects(printed)
    if without_outcome > 1:
        print_error(f"{without_outcome - 1} more commands have no outcome")
    return code, accepted


async def _outcomes(
    client: "Client", commands: "Sequence[PoolCommand]", dry_run: DryRun
) -> "AsyncGenerator[tuple[Command, Outcome], None]":
    if dry_run is DryRun.CLIENT:
        from nodepool.cli.dry_runs import expected_outcome

        async def compute_outcome(command: "PoolCommand") -> "Outcome":
            return await expected_outcome(client, command)

        async with aclosing(in_order(commands, compute_outcome)) as results:
            async for command, finished in results:
                yield command, finished.result()
        return
    tried = [
        command.model_copy(update={"dry_run": dry_run is DryRun.SERVER}) for command in commands
    ]
    async with aclosing(client.commands.send_each(tried)) as pairs:
        async for pair in pairs:
            yield pair


async def _report(
    client: "Client", command: "Command", outcome: "CommandAccepted", how: Reporting
) -> list[Document]:
    """Print the line of an accepted command; if the format shows objects, return the object."""
    from nodepool.contract.commands import ApplyNodePool

    name = command.path[2]
    how.output.print_line(f"{NODEPOOL.full}/{name}", how.line(name, outcome.result))
    if how.output.dry_run is DryRun.NONE and isinstance(command, ApplyNodePool):
        stored = await client.nodepools.find_stored(name)
        if stored is not None:
            warn(stored)
    if how.output.shows_objects:
        from nodepool.cli.dry_runs import resulting_document

        return [await resulting_document(client, command, how.output.dry_run)]
    return []


def _is_not_found(error: Exception) -> bool:
    from nodepool.client import Refused

    # The reason alone is not enough: a missing cluster is NotFound too.
    return isinstance(error, Refused) and (error.field, error.reason) == (
        "metadata.name",
        "NotFound",
    )
