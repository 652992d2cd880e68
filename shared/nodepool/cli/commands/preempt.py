"""`nodepool preempt`: preempts spot Nodes."""

from typing import TYPE_CHECKING

import click

from nodepool.cli.documents import labels
from nodepool.cli.errors import DONE, CliError, report
from nodepool.cli.names import NODE, parse_required_names
from nodepool.cli.options import objects_argument
from nodepool.cli.output import print_text
from nodepool.cli.settings import Command, Settings
from nodepool.cli.tables import POOL_LABEL

if TYPE_CHECKING:
    from nodepool.client import Client


@click.command(cls=Command)
@objects_argument((NODE,), "node NAME...")
@click.pass_obj
def preempt(settings: Settings, what: tuple[str, ...]) -> int:
    """Preempt spot Nodes; each is removed within seven minutes."""
    _, names = parse_required_names(what, (NODE,))

    async def work(client: "Client") -> int:
        from nodepool.client import ClientError

        code = DONE
        for name in names:
            try:
                outcome = await client.preempt(await pool_of(client, name), name)
            except (ClientError, CliError) as error:
                code = report(error, f'node "{name}"')
            else:
                change = "preemption pending" if outcome.result == "done" else "unchanged"
                print_text(f"{NODE.full}/{name} {change}")
        return code

    return settings.run(work)


async def pool_of(client: "Client", node: str) -> str:
    """The NodePool that a Node belongs to; raises `CliError` for a Node that does not exist."""
    document = await client.get("nodes", node)
    if document is None:
        raise CliError(f"not found in {client.org}/{client.cluster}")
    return labels(document).get(POOL_LABEL, "")
