"""`nodepool ack`: gives preempted Nodes back before their time."""

from typing import TYPE_CHECKING

import click

from nodepool.cli.commands.preempt import pool_of
from nodepool.cli.errors import DONE, CliError, report
from nodepool.cli.names import NODE, parse_required_names
from nodepool.cli.options import objects_argument
from nodepool.cli.output import print_text
from nodepool.cli.settings import Command, Settings

if TYPE_CHECKING:
    from nodepool.client import Client


@click.command(cls=Command)
@objects_argument((NODE,), "[node] NAME...")
@click.pass_obj
def ack(settings: Settings, what: tuple[str, ...]) -> int:
    """Give preempted Nodes back now: each is drained at once, not two minutes after its warning.

    nodepool ack g15e5f1
    """
    is_typed = bool(what) and (what[0].lower() in NODE.spellings or "/" in what[0])
    _, names = parse_required_names(what if is_typed else (NODE.singular, *what), (NODE,))

    async def work(client: "Client") -> int:
        from nodepool.client import ClientError

        code = DONE
        for name in names:
            try:
                outcome = await client.acknowledge_preemption(await pool_of(client, name), name)
            except (ClientError, CliError) as error:
                code = report(error, f'node "{name}"')
            else:
                change = "acknowledged" if outcome.result == "done" else "unchanged"
                print_text(f"{NODE.full}/{name} {change}")
        return code

    return settings.run(work)
