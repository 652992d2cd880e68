"""`nodepool label` and `annotate`: changes labels and annotations of NodePools."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from nodepool.cli.errors import DONE, REFUSED, CliError
from nodepool.cli.layout import escape_text
from nodepool.cli.options import Output, output_options
from nodepool.cli.output import print_error, print_note, print_text
from nodepool.cli.settings import Command, Settings
from nodepool.cli.targets import Targets, target_options
from nodepool.contract.documents import field

if TYPE_CHECKING:
    from nodepool.client import Client
    from nodepool.contract.documents import Document


@dataclass(frozen=True, slots=True)
class Pairs:
    """The changes to make to the labels or annotations of an object.

    kind: `label` or `annotation`.
    values: the new value of each key.
    removed: the keys to remove.
    overwrite: whether the value of an existing key may change.
    version: the resourceVersion that the object must have; empty for any.
    """

    kind: str
    values: Mapping[str, str]
    removed: Sequence[str]
    overwrite: bool
    version: str

    @property
    def past(self) -> str:
        """The past participle for the report on a changed object."""
        if self.kind == "label":
            return "unlabeled" if self.removed and not self.values else "labeled"
        return "annotated"

    def before(self, document: "Document") -> Mapping[str, str]:
        """Return the labels or annotations of an object."""
        given = field(document, "metadata", f"{self.kind}s")
        return given if isinstance(given, Mapping) else {}

    def revise(self, document: "Document") -> "Document":
        """Return the object with the changes; raise `CliError` if a key must not be overwritten."""
        old = self.before(document)
        for key, value in self.values.items():
            if not self.overwrite and old.get(key, value) != value:
                raise CliError(
                    f"{key!r} already has a value ({old[key]}), and --overwrite is false"
                )
        for key in self.removed:
            if key not in old:
                print_note(f'{self.kind} "{key}" not found.')
        kept = {key: value for key, value in old.items() if key not in self.removed}
        metadata = field(document, "metadata")
        assert isinstance(metadata, Mapping), "an object has metadata"
        version = self.version or metadata["resourceVersion"]
        changed = {f"{self.kind}s": {**kept, **self.values}, "resourceVersion": version}
        return {**document, "metadata": {**metadata, **changed}}


def _command(name: str, kind: str, help: str) -> click.Command:
    """Return `label` or `annotate`; only their words and the grammar of values differ."""

    @click.command(name, cls=Command, help=help)
    @target_options("Change", trailing=True)
    @click.option("--overwrite", is_flag=True, help="Let a key get another value than it has.")
    @click.option("--list", "list_", is_flag=True, help=f"Print the {kind}s instead.")
    @click.option(
        "--resource-version",
        "version",
        default="",
        metavar="V",
        help="Change a NodePool only if this is still its resourceVersion.",
    )
    @output_options()
    @click.pass_obj
    def command(
        settings: Settings,
        targets: Targets,
        trailing: Sequence[str],
        overwrite: bool,
        list_: bool,
        version: str,
        output: Output,
    ) -> int:
        values, removed = _pairs(trailing, kind)
        pairs = Pairs(kind, values, removed, overwrite, version)
        if list_:
            return settings.run(lambda client: _list(client, targets, pairs))
        if not trailing:
            raise click.UsageError(f"KEY=VALUE: is required; or KEY- to remove a {kind}")

        return settings.run(lambda client: _change(client, targets, pairs, output))

    return command


label = _command(
    "label",
    "label",
    "Set and remove labels of NodePools: KEY=VALUE sets one, KEY- removes it.\n\n"
    "The labels of Nodes are in spec.nodeLabels of their NodePool.\n\n"
    "nodepool label nodepool training team=ml stage-",
)
annotate = _command(
    "annotate",
    "annotation",
    "Set and remove annotations of NodePools: KEY=VALUE sets one, KEY- removes it.\n\n"
    "nodepool annotate nodepool training 'note=by hand' ticket-",
)


def _pairs(words: Sequence[str], kind: str) -> tuple[dict[str, str], list[str]]:
    """Return the values to set and the keys to remove; raise a usage error for any other word."""
    from nodepool.contract import grammar

    values: dict[str, str] = {}
    removed: list[str] = []
    for word in words:
        key, sign, value = word.partition("=")
        if not sign:
            key = word.removesuffix("-")
            removed.append(key)
        else:
            values[key] = value
        fault = grammar.qualified_name(key if kind == "label" else key.lower())
        if fault is None and sign and kind == "label":
            fault = grammar.label_value(value)
        if fault is not None:
            raise click.UsageError(f"{word}: {fault}")
    for key in removed:
        if key in values:
            raise click.UsageError(f"{key}: cannot be set and removed at once")
    return values, removed


async def _change(client: "Client", targets: Targets, pairs: Pairs, output: Output) -> int:
    from nodepool.cli.changing import change_each

    def verb(_: str, result: str) -> str:
        return f"not {pairs.past}" if result == "unchanged" else pairs.past

    return await change_each(client, await targets.find(client), pairs.revise, verb, output)


async def _list(client: "Client", targets: Targets, pairs: Pairs) -> int:
    from nodepool.client.manifests import stored_document

    names, code = await targets.find(client), DONE
    for name in names:
        stored = await client.nodepools.find_stored(name)
        if stored is None:
            print_error(f'nodepool "{name}" not found in {client.org}/{client.cluster}')
            code = REFUSED
            continue
        if len(names) > 1:
            print_text(f"Listing {pairs.kind}s for NodePool/{name}:")
        indent = " " if len(names) > 1 else ""
        for key, value in sorted(pairs.before(stored_document(stored)).items()):
            print_text(escape_text(f"{indent}{key}={value}"))
    return code
