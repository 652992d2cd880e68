"""`nodepool diff`: shows what applying manifests would change."""

from collections.abc import Iterator, Sequence
from difflib import unified_diff
from typing import TYPE_CHECKING

import click

from nodepool.cli.errors import DONE, REFUSED, USAGE, report
from nodepool.cli.names import NODEPOOL
from nodepool.cli.options import Files, files_options
from nodepool.cli.output import as_yaml, print_text
from nodepool.cli.settings import Command, Settings

if TYPE_CHECKING:
    from nodepool.cli.documents import Document
    from nodepool.client import Client
    from nodepool.client.manifests import Manifest

DIFFERENT = 1
FAILED = USAGE
"""As 1 says that there are differences, what is refused or not found exits with 2 here."""


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
    from nodepool.client.stored import desired_document, stored_document

    different, failed = False, DONE
    for manifest in manifests:
        command = client.addressed(manifest).model_copy(update={"dry_run": True})
        name = command.metadata.name
        try:
            await client.send(command)
            stored = await client.find_stored(name)
        except ClientError as error:
            code = report(error, f'{manifest.place}: nodepool "{name}"')
            failed = FAILED if code == REFUSED else code
            continue
        before = _comparable(stored_document(stored)) if stored is not None else []
        lines = list(_lines(name, before, _comparable(desired_document(command))))
        if lines:
            different = True
            print_text("\n".join(lines))
    return failed or (DIFFERENT if different else DONE)


def _comparable(document: "Document") -> list[str]:
    """The lines of an object, without what only the control plane knows of it."""
    metadata = document["metadata"]
    assert isinstance(metadata, dict), "an object has metadata"
    kept = {key: metadata[key] for key in ("name", "labels", "annotations") if key in metadata}
    return as_yaml({**document, "metadata": kept}).split("\n")


def _lines(name: str, before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    path = f"{NODEPOOL.full}/{name}"
    return unified_diff(before, after, f"LIVE/{path}", f"MERGED/{path}", lineterm="")
