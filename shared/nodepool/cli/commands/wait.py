"""`nodepool wait`: waits for a condition of NodePools, or for their deletion."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from nodepool.cli.errors import DONE, report
from nodepool.cli.names import NODEPOOL, parse_required_names
from nodepool.cli.options import seconds
from nodepool.cli.output import print_text
from nodepool.cli.settings import Command, Settings

if TYPE_CHECKING:
    from nodepool.client import Client
    from nodepool.contract.model import ConditionStatus

READ_S = 0.5
"""How long reading the present state of an object may take, in seconds."""
STATUSES: "dict[str, ConditionStatus]" = {"true": "True", "false": "False", "unknown": "Unknown"}


@click.command(cls=Command)
@click.argument("what", nargs=-1, metavar="nodepool NAME...")
@click.option(
    "--for",
    "until",
    required=True,
    metavar="condition=TYPE[=STATUS]|delete",
    help="What to wait for; STATUS is True, False or Unknown, and True by default.",
)
@click.option(
    "--timeout",
    default="30s",
    show_default=True,
    metavar="DURATION",
    help="How long to wait for all of them together.",
)
@click.pass_obj
def wait(settings: Settings, what: tuple[str, ...], until: str, timeout: str) -> int:
    """Wait until NodePools have a condition or are deleted."""
    _, names = parse_required_names(what, (NODEPOOL,))
    condition, status = _condition(until)
    timeout_s = seconds("--timeout", timeout)
    return settings.run(lambda client: _wait(client, names, condition, status, timeout_s))


def _condition(until: str) -> "tuple[str, ConditionStatus]":
    """The condition and its status; an empty condition stands for deletion."""
    if until == "delete":
        return "", "True"
    word, _, rest = until.partition("=")
    condition, _, text = rest.partition("=")
    if word != "condition" or not condition:
        raise click.UsageError(
            f"--for: {until!r} is not supported;"
            " write condition=TYPE, condition=TYPE=STATUS or delete"
        )
    status = STATUSES.get((text or "true").lower())
    if status is None:
        raise click.UsageError(f"--for: {text!r} is not a status; use True, False or Unknown")
    return condition, status


async def _wait(
    client: "Client",
    names: Sequence[str],
    condition: str,
    status: "ConditionStatus",
    timeout_s: float,
) -> int:
    """Waits for one NodePool after the other; the exit code is that of the last error.

    The time limit is for all together, as in kubectl.
    """
    import asyncio

    from nodepool.client import ClientError

    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    code = DONE
    for name in names:
        # Even with no time left, the present state is read once.
        left = max(deadline - loop.time(), READ_S)
        try:
            if condition:
                await client.wait(name, condition, status, timeout_s=left)
            else:
                await client.wait_until_gone(name, timeout_s=left)
        except ClientError as error:
            code = report(error)
        else:
            print_text(f"{NODEPOOL.full}/{name} condition met")
    return code
