"""The common parts of the verbs about Nodes: selecting Nodes, and printing one line per Node."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from nodepool.cli.errors import DONE, CliError, report
from nodepool.cli.names import NODE, parse_required_names
from nodepool.cli.options import objects_argument
from nodepool.cli.output import print_text
from nodepool.cli.tables import POOL_LABEL
from nodepool.contract.documents import labels

if TYPE_CHECKING:
    from nodepool.client import Client
    from nodepool.contract.events import CommandAccepted

F = TypeVar("F", bound=Callable[..., object])
TOGETHER_MAX = 1_000
"""How many Nodes are changed at the same time at most; each Node has its own reader."""
Change = Callable[[str], Awaitable[str]]
"""Changes the Node with this name; returns the text to print about it, such as `cordoned`."""


def nodes_argument() -> Callable[[F], F]:
    """Return the argument that names Nodes, as the parameter `what`, for `parse_nodes`."""
    return objects_argument((NODE,), "NODE... | node NAME...")


def parse_nodes(words: Sequence[str]) -> list[str]:
    """Return the names of Nodes in `NODE...`, `node NAME...` or `node/NAME...`."""
    is_typed = words and ("/" in words[0] or words[0].lower() in NODE.spellings)
    _, names = parse_required_names(words if is_typed or not words else ("node", *words), (NODE,))
    return names


async def pool_of(client: "Client", node: str) -> str:
    """Return the NodePool of a Node; raise `CliError` for a Node that does not exist."""
    document = await client.nodes.get(node)
    if document is None:
        raise CliError(f"not found in {client.org}/{client.cluster}")
    return labels(document).get(POOL_LABEL, "")


def format_change(outcome: "CommandAccepted", change: str) -> str:
    """Return what is printed after a command: the change, or that nothing changed."""
    return change if outcome.result == "done" else "unchanged"


async def in_turn(names: Sequence[str], change: Change) -> int:
    """Change one Node after the other; return the exit code of the last error."""
    from nodepool.client import ClientError

    code = DONE
    for name in names:
        try:
            print_text(f"{NODE.full}/{name} {await change(name)}")
        except (ClientError, CliError) as error:
            code = report(error, f'node "{name}"')
    return code


async def several_at_a_time(names: Sequence[str], change: Change) -> int:
    """Change Nodes, some at a time, and report each in order; return the code of the last error."""
    from contextlib import aclosing

    from nodepool.cli.in_order import in_order
    from nodepool.client import ClientError

    code = DONE
    async with aclosing(in_order(names, change)) as changes:
        async for name, finished in changes:
            try:
                print_text(f"{NODE.full}/{name} {finished.result()}")
            except (ClientError, CliError) as error:
                code = report(error, f'node "{name}"')
    return code


async def together(names: Sequence[str], change: Change) -> int:
    """Change Nodes, up to `TOGETHER_MAX` at the same time; return the code of the last error."""
    import asyncio

    from nodepool.client import ClientError

    places = asyncio.Semaphore(TOGETHER_MAX)

    async def change_node(name: str) -> str:
        async with places:
            return await change(name)

    results = await asyncio.gather(*map(change_node, names), return_exceptions=True)
    code = DONE
    for name, result in zip(names, results, strict=True):
        match result:
            case str():
                print_text(f"{NODE.full}/{name} {result}")
            case ClientError() | CliError():
                code = report(result, f'node "{name}"')
            case _:
                raise result
    return code
