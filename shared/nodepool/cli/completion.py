"""What a shell offers for the word that is being typed."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, ShellComplete

from nodepool.cli.names import INSTANCE_TYPE, KINDS, NODE, NODEPOOL, QUOTA, ZONE, Kind
from nodepool.cli.settings import Settings, from_environment

if TYPE_CHECKING:
    from nodepool.client import Client

FILES = ":files"
"""Stands for the names of files, which the shell completes itself."""
PATIENCE_S = 0.4
"""How long the names of objects may take, in seconds; after that none are offered."""
CHANGEABLE = (NODEPOOL,)
TYPES: dict[str, Sequence[Kind]] = {
    "delete": (NODEPOOL, QUOTA),
    "preempt": (NODE,),
    "events": (NODEPOOL, NODE),
    "get": KINDS,
    "describe": KINDS,
    "wait": (NODEPOOL, NODE),
}
"""The types that a verb takes; all others take NodePools alone."""
CONDITIONS = ("Validated", "Capacity", "Quota", "AtTarget", "NodesRemoved")


def completions(root: click.Command, words: Sequence[str], word: str) -> list[str]:
    """The words that may stand where `word` begins, after `words`; or `FILES`.

    Nothing fails here: where something cannot be found out, less is offered.
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
    """The completion of click, with what click cannot know: names, files, conditions."""

    name = "nodepool"
    source_template = ""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import _resolve_context, _resolve_incomplete

        context = _resolve_context(self.cli, self.ctx_args, self.prog_name, args)
        param, text = _resolve_incomplete(context, args, incomplete)
        if not isinstance(param, click.Parameter):
            return param.shell_complete(context, text)
        offered = _offered(context, param, text)
        if offered is None:
            return param.shell_complete(context, text)
        return [CompletionItem(each) for each in offered if each == FILES or each.startswith(text)]


def _offered(context: click.Context, param: click.Parameter, text: str) -> Sequence[str] | None:
    """The values of a parameter, those that do not fit included; None where click knows them."""
    match param.name:
        case "names" | "data_dir" | "examples" | "patch_file":
            return [FILES]
        case "what" | "regarded":
            given = context.params.get("what") or ()
            words = (given,) if isinstance(given, str) else tuple(given)
            return list(_objects(context, words if param.name == "what" else (), text))
        case "until":
            return list(_conditions())
        case "zone":
            return _zones()
        case "instance_type":
            return _instance_types()
        case "machine":
            return _machines(context)
        case "compute_class":
            return ["default", "spot"]
        case "types":
            return ["Normal", "Warning"]
        case "path":
            return _fields(text)
    return None


def _objects(context: click.Context, words: Sequence[str], text: str) -> Iterator[str]:
    """A type, or the name of an object of the type that stands there already."""
    kinds = TYPES.get(context.info_name or "", CHANGEABLE)
    spelling, slash, _ = text.partition("/")
    if slash:
        for kind in kinds:
            if spelling.lower() in kind.spellings:
                yield from (f"{spelling}/{name}" for name in _names(context, kind))
    elif context.info_name == "events":
        yield from (f"{kind.singular}/" for kind in kinds)
    elif not words:
        yield from (kind.plural for kind in kinds)
    elif "/" not in words[0]:
        for kind in kinds:
            if words[0].lower() in kind.spellings:
                yield from (name for name in _names(context, kind) if name not in words)


def _names(context: click.Context, kind: Kind) -> Sequence[str]:
    """The names of the objects of a type; none where the server does not say them in time."""
    import asyncio

    if kind.stored_in is None:
        return {ZONE: _zones, INSTANCE_TYPE: _instance_types}.get(kind, list[str])()
    names: list[str] = []

    async def collect(client: "Client") -> None:
        async for change in client.watch(kind.bucket):
            key = getattr(change, "key", None)
            if key is None:
                return
            if change.document is not None:  # type: ignore[union-attr]  # Only the mark has no key.
                names.append(key)

    async def bounded() -> None:
        from nodepool.client import Client, ClientError

        with suppress(TimeoutError, ClientError, OSError):
            async with asyncio.timeout(PATIENCE_S):
                settings = context.find_object(Settings) or from_environment()
                async with Client(
                    settings.url, org=settings.org, cluster=settings.cluster, timeout_s=PATIENCE_S
                ) as client:
                    await collect(client)

    asyncio.run(bounded())
    return sorted(names)


def _conditions() -> Iterator[str]:
    yield "delete"
    for name in CONDITIONS:
        yield f"condition={name}"
        for status in ("True", "False", "Unknown"):
            yield f"condition={name}={status}"


def _zones() -> list[str]:
    from nodepool.contract.catalog import ZONES

    return list(ZONES)


def _instance_types() -> list[str]:
    from nodepool.contract.catalog import INSTANCE_TYPES

    return sorted(INSTANCE_TYPES)


def _machines(context: click.Context) -> list[str]:
    """Zones, and the machines that are Nodes of the cluster: they have the same names."""
    return [f"{zone}/" for zone in _zones()]


def _fields(text: str) -> list[str]:
    """The paths of `explain` that go one field further than the text."""
    from nodepool.cli.schema import nodepool

    root, dot, _ = text.partition(".")
    if not dot:
        return [NODEPOOL.singular, f"{NODEPOOL.singular}."]
    field, path = nodepool(), root
    for name in text.split(".")[1:-1]:
        inner = [each for each in field.fields if each.name == name]
        if not inner:
            return []
        field, path = inner[0], f"{path}.{name}"
    return [f"{path}.{each.name}" for each in field.fields]
