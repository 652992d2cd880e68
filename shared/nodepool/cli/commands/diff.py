"""`nodepool diff`: shows what applying manifests would change, or what changed meanwhile."""

from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from difflib import unified_diff
from typing import TYPE_CHECKING

import click

from nodepool.cli.errors import DONE, REFUSED, USAGE, report
from nodepool.cli.in_order import in_order
from nodepool.cli.missing import check_place
from nodepool.cli.names import NODEPOOL, parse_selections
from nodepool.cli.options import Files, files_options, objects_argument
from nodepool.cli.output import as_yaml, print_error, print_text
from nodepool.cli.past import archive_option, parse_point
from nodepool.cli.settings import Command, Settings
from nodepool.cli.sources import read

if TYPE_CHECKING:
    from nodepool.client import Client
    from nodepool.client.manifests import Manifest
    from nodepool.client.past.session import Moment
    from nodepool.contract.commands import ApplyNodePool
    from nodepool.contract.documents import Document
    from nodepool.contract.events import NodePoolValidated

DIFFERENT = 1
FAILED = USAGE
"""The exit code here if something is refused or not found; 1 means that there are differences."""


@click.command(cls=Command)
@objects_argument((NODEPOOL,), "[nodepool [NAME]...]")
@files_options("Manifest file, folder of manifests, or -; may be repeated.")
@click.option("--from", "since", metavar="TIME|POSITION", help="Show what changed since then.")
@click.option("--to", "until", metavar="TIME|POSITION", help="Up to then, instead of until now.")
@archive_option()
@click.pass_obj
def diff(
    settings: Settings,
    what: tuple[str, ...],
    files: Files,
    since: str | None,
    until: str | None,
    archive: str,
) -> int:
    """Show what applying manifests would change, or what changed between two moments.

    \b
    nodepool diff -f training.yaml
    nodepool diff --from 24h --to 2h nodepool training

    Exit codes: 0 nothing, 1 something, 2 refused or usage, 3 timeout, 4 no server.
    """
    from nodepool.client.manifests import ManifestError

    if since is not None:
        if files.names:
            raise click.UsageError("-f: has no meaning with --from; leave one of them out")
        return _diff_moments(replace(settings, archive=archive), what, since, until)
    if what or until is not None or not files.names:
        raise click.UsageError("-f: name manifests, or two moments with --from and --to")
    try:
        manifests = files.manifests()
    except ManifestError as error:
        report(error)
        return FAILED
    return settings.run(lambda client: _diff(client, manifests))


def _diff_moments(settings: Settings, what: tuple[str, ...], since: str, until: str | None) -> int:
    """Print what changed of NodePools between two moments; return the exit code."""
    selections = parse_selections(what, (NODEPOOL,)) if what else ()
    names = [name for each in selections for name in each.names]
    first = parse_point("--from", since)
    second = parse_point("--to", until) if until is not None else None
    before = _pools_at(settings, first, names, check=False)
    after = _pools_at(settings, second, names, check=True)
    unknown = [name for name in names if name not in before and name not in after]
    for name in unknown:
        print_error(f'nodepool "{name}" not found at either moment')
    changed = False
    for name in sorted({*before, *after}):
        old, new = (_lines_of(pools.get(name)) for pools in (before, after))
        path = f"{NODEPOOL.full}/{name}"
        lines = list(unified_diff(old, new, f"FROM/{path}", f"TO/{path}", lineterm=""))
        if lines:
            changed = True
            print_text("\n".join(lines))
    return FAILED if unknown else (DIFFERENT if changed else DONE)


def _pools_at(
    settings: Settings, moment: "Moment | None", names: Sequence[str], *, check: bool
) -> "dict[str, Document]":
    """Return the NodePools as they were at a moment, by name; as they are now for None.

    check: whether the cluster must have been there.
    """

    async def work(client: "Client") -> "dict[str, Document]":
        items = await read(client, NODEPOOL, names)
        if check and not items:
            await check_place(client, NODEPOOL)
        return {item.key: item.document or {} for item in items}

    return replace(settings, at=moment).result(work)


def _lines_of(document: "Document | None") -> list[str]:
    """Return the lines of an object; its version alone is no change."""
    if document is None:
        return []
    metadata = document["metadata"]
    assert isinstance(metadata, dict), "an object has metadata"
    kept = {key: value for key, value in metadata.items() if key != "resourceVersion"}
    return as_yaml({**document, "metadata": kept}).split("\n")


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
