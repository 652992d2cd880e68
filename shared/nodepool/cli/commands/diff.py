"""`nodepool diff`: shows what applying manifests would change."""

from collections.abc import Iterator, Sequence
from contextlib import aclosing
from difflib import unified_diff
from typing import TYPE_CHECKING

import click

from nodepool.cli.errors import DONE, REFUSED, USAGE, report
from nodepool.cli.in_order import in_order
from nodepool.cli.names import NODEPOOL
from nodepool.cli.options import Files, files_options
from nodepool.cli.output import as_yaml, print_text
from nodepool.cli.settings import Command, Settings

if TYPE_CHECKING:
    from nodepool.client import Client
    from nodepool.client.manifests import Manifest
    from nodepool.contract.commands import ApplyNodePool
    from nodepool.contract.documents import Document
    from nodepool.contract.events import NodePoolValidated

DIFFERENT = 1
FAILED = USAGE
"""The exit code here if something is refused or not found; 1 means that there are differences."""


@click.command(cls=Command)
@files_options("Manifest file, folder of manifests, or -; may be repeated.", required=True)
@click.pass_obj
def diff(settings: Settings, files: Files) -> int:
    """Show what applying manifests would change.

    Exit codes: 0 nothing, 1 something, 2 refused or usage, 3 timeout, 4 no server.
    """
    from nodepool.client.manifests import ManifestError

    try:
        manifests = files.manifests()
    except ManifestError as error:
        report(error)
        return FAILED
    return settings.run(lambda client: _diff(client, manifests))


async def _diff(client: "Client", manifests: "Sequence[Manifest]") -> int:
    from nodepool.client import ClientError
    from nodepool.client.manifests import stored_document

    different, failed = False, DONE
    commands = [
        client.nodepools.address_manifest(each).model_copy(update={"dry_run": True})
        for each in manifests
    ]

    async def find_pool(command: "ApplyNodePool") -> "NodePoolValidated | None":
        return await client.nodepools.find_stored(command.metadata.name)

    async with (
        aclosing(client.commands.send_each(commands)) as outcomes,
        aclosing(in_order(commands, find_pool)) as befores,
    ):
        for manifest in manifests:
            _, outcome = await anext(outcomes)
            command, before = await anext(befores)
            name = command.metadata.name
            error = outcome if isinstance(outcome, ClientError) else before.exception()
            if isinstance(error, ClientError):
                code = report(error, f'{manifest.place}: nodepool "{name}"')
                failed = FAILED if code == REFUSED else code
                continue
            old = before.result()
            lines = _changes(name, stored_document(old) if old is not None else None, command)
            if lines:
                different = True
                print_text("\n".join(lines))
    return failed or (DIFFERENT if different else DONE)


def _changes(name: str, before: "Document | None", command: "ApplyNodePool") -> list[str]:
    """Return the lines that say what a command would change; empty if it changes nothing."""
    from nodepool.client.manifests import desired_document

    old = _comparable(before) if before is not None else []
    return list(_lines(name, old, _comparable(desired_document(command))))


def _comparable(document: "Document") -> list[str]:
    """Return the lines of an object, without the fields that only the control plane knows."""
    metadata = document["metadata"]
    assert isinstance(metadata, dict), "an object has metadata"
    kept = {key: metadata[key] for key in ("name", "labels", "annotations") if key in metadata}
    return as_yaml({**document, "metadata": kept}).split("\n")


def _lines(name: str, before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    path = f"{NODEPOOL.full}/{name}"
    return unified_diff(before, after, f"LIVE/{path}", f"MERGED/{path}", lineterm="")
