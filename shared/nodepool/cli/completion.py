"""The completions that a shell offers for the word that is being typed."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, ShellComplete

from nodepool.cli.names import (
    CLUSTER,
    EVENT,
    INSTANCE_TYPE,
    MACHINE,
    NODEPOOL,
    POD,
    PREEMPTION,
    WITH_EVENTS,
    ZONE,
    Kind,
)
from nodepool.cli.options import Objects
from nodepool.cli.output import is_named, name_of
from nodepool.cli.settings import Settings, from_environment
from nodepool.cli.sources import read
from nodepool.contract.documents import Document
from nodepool.contract.documents import text as field_text

if TYPE_CHECKING:
    from nodepool.client import Client

FILES = ":files"
"""Tells the shell to complete the names of files itself."""
PATIENCE_S = 0.4
"""How long reading the names of objects may take, in seconds; after that, no name is offered."""
CONDITIONS = ("Validated", "Capacity", "Quota", "AtTarget", "NodesRemoved")
STATES = (
    *("create", "delete", "jsonpath="),
    *(
        f"condition={name}{status}"
        for name in CONDITIONS
        for status in ("", "=True", "=False", "=Unknown")
    ),
)
VALUES: dict[str, Sequence[str]] = {
    **dict.fromkeys(("names", "files", "patch_file", "data_dir", "auth_dir", "examples"), (FILES,)),
    "compute_class": ("default", "spot"),
    "types": ("Normal", "Warning"),
    "until": STATES,
}
"""The values of parameters that are known without a server, by the names of the parameters."""


def completions(root: click.Command, words: Sequence[str], word: str) -> list[str]:
    """Return the words that may replace `word` after `words`; or `FILES`.

    No error is raised: if something cannot be found out, fewer words are offered.
    """
    shell = _Completion(root, {}, "nodepool", "")
    prefix = ""
    if word.startswith("-") and "=" in word:
        prefix = f"{word.partition('=')[0]}="
    with suppress(click.ClickException):
        items = shell.get_completions(list(words), word)
        return [item.value if item.value == FILES else f"{prefix}{item.value}" for item in items]
    return []


class _Completion(ShellComplete):
    """Extends click's completion with what click cannot know: names, files and conditions."""

    name = "nodepool"
    source_template = ""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import _resolve_context, _resolve_incomplete

        context = _resolve_context(self.cli, self.ctx_args, self.prog_name, args)
        param, text = _resolve_incomplete(context, args, incomplete)
        if not isinstance(param, click.Parameter):
            return param.shell_complete(context, text)
        offered = _list_values(context, param, text)
        if offered is None:
            return param.shell_complete(context, text)
        return [CompletionItem(each) for each in offered if each == FILES or each.startswith(text)]


def _list_values(context: click.Context, param: click.Parameter, text: str) -> Sequence[str] | None:
    """Return the values of a parameter, unfiltered; None if click knows the values."""
    if isinstance(param, Objects):
        return list(_objects(context, param.kinds, context.params.get("what") or (), text))
    match param.name:
        case "regarded":
            return list(_pairs(context, WITH_EVENTS, text))
        case "zone" | "instance_type":
            return _zones() if param.name == "zone" else _instance_types()
        case "selections":
            return [f"{each}=" for each in _spot_types()]
        case "machine":
            return _machines(context, text)
        case "path":
            return _fields(text)
        case "explained_name" | "pool":
            return _names(context, NODEPOOL)
        case "letter" | "letters":
            return _letters(context)
        case "org" | "cluster" if isinstance(param, click.Option):
            return _places(context, param.name)
    return VALUES.get(param.name or "")


def _objects(
    context: click.Context, kinds: Sequence[Kind], words: Sequence[str], text: str
) -> Iterator[str]:
    """Yield the types, or the names of objects of the type that is already written."""
    if "/" in text or any("/" in word for word in words):
        yield from (pair for pair in _pairs(context, kinds, text) if pair not in words)
    elif not words:
        others = text.rpartition(",")[0].split(",") if "," in text else []
        chosen = [kind for spelling in others for kind in _spelt(spelling, kinds)]
        yield from (",".join([*others, kind.plural]) for kind in kinds if kind not in chosen)
    else:
        for kind in _spelt(words[0], kinds):
            yield from (name for name in _names(context, kind) if name not in words)


def _pairs(context: click.Context, kinds: Sequence[Kind], text: str) -> Iterator[str]:
    """Yield `TYPE/`, or `TYPE/NAME` for each object of the type that is already written."""
    spelling, slash, _ = text.partition("/")
    if not slash:
        yield from (f"{kind.singular}/" for kind in kinds)
    for kind in _spelt(spelling, kinds) if slash else ():
        yield from (f"{spelling}/{name}" for name in _names(context, kind))


def _spelt(spelling: str, kinds: Sequence[Kind]) -> list[Kind]:
    return [kind for kind in kinds if spelling.lower() in kind.spellings]


def _names(context: click.Context, kind: Kind) -> Sequence[str]:
    """Return the names of the objects of a type."""
    match kind.plural:
        case ZONE.plural:
            return _zones()
        case INSTANCE_TYPE.plural:
            return _instance_types()
        case EVENT.plural | PREEMPTION.plural | POD.plural:
            return ()
    return [name_of(kind, document) for document in _read(context, kind)]


def _read(context: click.Context, kind: Kind, *, everywhere: bool = False) -> Sequence[Document]:
    """Return the objects of a type; empty if the server does not return them in time."""
    import asyncio

    from nodepool.client.errors import ClientError

    async def read_all(client: "Client") -> Sequence[Document]:
        async with asyncio.timeout(PATIENCE_S):
            items = await read(client, kind, everywhere=everywhere, at_once=True)
            return [item.document or {} for item in items]

    settings = context.find_object(Settings) or from_environment()
    with suppress(TimeoutError, ClientError, OSError):
        return replace(settings, timeout_s=PATIENCE_S).result(read_all)
    return ()


def _places(context: click.Context, part: str) -> list[str]:
    """Return the organisations that have clusters, or the clusters of the organisation."""
    clusters = _read(context, CLUSTER, everywhere=True)
    if part == "org":
        return sorted({field_text(each, "spec", "org") for each in clusters})
    own = (context.find_object(Settings) or from_environment()).org
    return [name_of(CLUSTER, each) for each in clusters if field_text(each, "spec", "org") == own]


def _letters(context: click.Context) -> Sequence[str]:
    """Return the positions of the newest dead letters."""
    import asyncio

    from nodepool.client.errors import ClientError

    found: list[str] = []

    async def read_all(client: "Client") -> None:
        async with asyncio.timeout(PATIENCE_S):
            letters, _ = await client.admin.dead_letters.list()
            found.extend(str(letter.position) for letter in letters)

    settings = context.find_object(Settings) or from_environment()
    with suppress(TimeoutError, ClientError, OSError):
        replace(settings, timeout_s=PATIENCE_S).run(read_all)
    return found


def _zones() -> list[str]:
    from nodepool.contract.catalog import ZONES

    return list(ZONES)


def _instance_types() -> list[str]:
    from nodepool.contract.catalog import INSTANCE_TYPES

    return sorted(INSTANCE_TYPES)


def _spot_types() -> list[str]:
    from nodepool.contract.catalog import INSTANCE_TYPES

    return sorted(name for name, each in INSTANCE_TYPES.items() if not each.superchip)


def _machines(context: click.Context, text: str) -> list[str]:
    """Return `ZONE/`, or `ZONE/MACHINE` for each machine of the zone that is already written."""
    zone, slash, _ = text.partition("/")
    if not slash:
        return [f"{each}/" for each in _zones()]
    machines = [each for each in _read(context, MACHINE) if is_named(MACHINE, each, [zone])]
    return [f"{zone}/{name_of(MACHINE, each)}" for each in machines]


def _fields(text: str) -> list[str]:
    """Return the paths of `explain` that go one field further than the text."""
    from nodepool.cli.schema import NoSuchFieldError, find_field

    root, *names = text.split(".")
    if not names:
        return [NODEPOOL.singular, f"{NODEPOOL.singular}."]
    with suppress(NoSuchFieldError):
        path = ".".join([root, *names[:-1]])
        return [f"{path}.{each.name}" for each in find_field(names[:-1]).fields]
    return []
