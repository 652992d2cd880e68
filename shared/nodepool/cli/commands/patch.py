"""`nodepool patch`: changes some fields of NodePools."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from nodepool.cli.errors import CliError
from nodepool.cli.options import Output, output_options
from nodepool.cli.settings import Command, Settings
from nodepool.cli.targets import Targets, target_options

if TYPE_CHECKING:
    from nodepool.client import Client
    from nodepool.contract.documents import Document

DIRECTIVES = ("$patch", "$retainKeys", "$deleteFromPrimitiveList", "$setElementOrder")


@click.command(cls=Command)
@target_options("Patch")
@click.option("-p", "--patch", "text", metavar="PATCH", help="The patch, as JSON or YAML.")
@click.option("--patch-file", metavar="FILE", help="A file with the patch, or -.")
@click.option(
    "--type",
    "kind",
    type=click.Choice(["merge", "json", "strategic"]),
    default="merge",
    show_default=True,
    help="merge: RFC 7396; json: RFC 6902; strategic: as merge, since no list has merge keys.",
)
@output_options()
@click.pass_obj
def patch(
    settings: Settings,
    targets: Targets,
    text: str | None,
    patch_file: str | None,
    kind: str,
    output: Output,
) -> int:
    """Change some fields of NodePools.

    nodepool patch nodepool training -p '{"spec": {"targetNodes": 12}}'
    """
    if (text is None) == (patch_file is None):
        raise click.UsageError("-p: write either -p PATCH or --patch-file FILE")
    content = _parse_patch(text if text is not None else _content(str(patch_file)))
    if kind != "json" and not isinstance(content, Mapping):
        raise CliError("the patch is not a map; write --type json for a list of operations")
    if kind == "strategic" and any(name in str(content) for name in DIRECTIVES):
        raise click.UsageError("--type: strategic directives have no meaning here; use json")
    from nodepool.cli.changing import change_each

    def revise(document: "Document") -> "Document":
        return _apply_patch(document, content, kind)

    def verb(_: str, result: str) -> str:
        return "patched (no change)" if result == "unchanged" else "patched"

    async def work(client: "Client") -> int:
        return await change_each(client, await targets.find(client), revise, verb, output)

    return settings.run(work)


def _content(file: str) -> str | bytes:
    from nodepool.client.manifests import SIZE_MAX, standard_input
    from nodepool.nats.wire.files import read_given

    try:
        if file == "-":
            return standard_input()
        return read_given(file, SIZE_MAX)
    except OSError as error:
        raise CliError(f"{file}: cannot be read: {error.strerror}") from None


def _parse_patch(text: str | bytes) -> object:
    """Return the value of a patch; raise `CliError` if the text is neither JSON nor YAML."""
    from nodepool.client.manifests import ManifestError, parse_yaml

    try:
        return parse_yaml(text, "the patch")
    except ManifestError as error:
        raise CliError(str(error)) from None


def _apply_patch(document: "Document", content: object, kind: str) -> "Document":
    from nodepool.cli.patches import PatchError, apply_json_patch
    from nodepool.contract.merging import apply_merge_patch

    try:
        result = (
            apply_json_patch(document, content)
            if kind == "json"
            else apply_merge_patch(document, content)
        )
    except PatchError as error:
        raise CliError(f"the patch does not fit: {error}") from None
    if not isinstance(result, Mapping):
        raise CliError("the patch leaves no object")
    return result
