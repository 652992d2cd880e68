"""What people write down to be applied: YAML or JSON text, read into NodePool manifests."""

import json
import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import ValidationError

from nodepool.contract.commands import ApplyNodePool
from nodepool.contract.decode import explain
from nodepool.contract.model import API_VERSION, KIND

try:
    from yaml import CSafeLoader as _SafeLoader
except ImportError:  # The wheel of a rare platform has no libyaml; the slow loader reads the same.
    from yaml import SafeLoader as _SafeLoader  # type: ignore[assignment]

SUFFIXES = frozenset((".yaml", ".yml", ".json"))
"""Which files of a folder are read."""
STDIN = "-"
SIZE_MAX = 1024 * 1024
"""The most bytes of one file or of standard input."""
DEPTH_MAX = 64
"""How deep lists and maps may lie in each other; a NodePool's own fields need nine."""
_FIELDS = frozenset(("apiVersion", "kind", "metadata", "spec", "status"))
_LISTS = frozenset(("List", "NodePoolList"))


class ManifestError(ValueError):
    """Why a text is no manifest: the place, the field and the fix, in one line."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One NodePool as it was written down; `place` is its file, and its document where several."""

    place: str
    command: ApplyNodePool


def read_manifests(names: Iterable[str]) -> list[Manifest]:
    """Every manifest in files, in folders (not below them) and in standard input (`-`).

    Raises `ManifestError` for one that cannot be read; then none is given.
    """
    return [
        manifest
        for name in names
        for source, content in _contents(name)
        for manifest in manifests(content, source)
    ]


def _contents(name: str) -> Iterator[tuple[str, bytes]]:
    # One byte more than allowed tells a large input from one that just fits.
    if name == STDIN:
        yield "standard input", sys.stdin.buffer.read(SIZE_MAX + 1)
        return
    for path in _files(Path(name)):
        try:
            with path.open("rb") as file:
                yield str(path), file.read(SIZE_MAX + 1)
        except OSError as error:
            raise ManifestError(f"{path}: cannot be read: {error.strerror}") from None


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
    if not found:
        raise ManifestError(f"{path}: holds no .yaml, .yml or .json file; name one that does")
    return found


def manifests(text: str | bytes, source: str) -> list[Manifest]:
    """The NodePools in a text of YAML documents or of JSON, in its order; at least one.

    Items of a `List` count one by one. Raises `ManifestError`, whose text begins with `source`.
    """
    found = [
        Manifest(place, manifest(body, place))
        for place, document in _documents(_decoded(text, source), source)
        for place, body in _items(document, place)
    ]
    if not found:
        raise ManifestError(f"{source}: holds no manifest; write one with kind: {KIND}")
    return found


def manifest(body: object, place: str) -> ApplyNodePool:
    """One NodePool manifest, given as the value that its YAML means.

    Raises `ManifestError`, whose text begins with `place` and names the field.
    """
    if not isinstance(body, Mapping):
        raise ManifestError(f"{place}: is no map of fields; begin with apiVersion: {API_VERSION}")
    _check_type(body, place)
    for field in body:
        if field not in _FIELDS:
            raise ManifestError(f"{place}: {field}: is not a known field; remove it")
    try:
        text = json.dumps(body)
    except (TypeError, ValueError, RecursionError):
        raise ManifestError(f"{place}: holds a value that JSON cannot carry; quote it") from None
    try:
        # From JSON and strict, as the control plane itself reads a command.
        read = ApplyNodePool.model_validate_json(text, strict=True, extra="forbid")
    except ValidationError as error:
        field, cause = explain(error)
        raise ManifestError(f"{place}: {field}: {cause}") from None
    return read.model_copy(update={"pool": read.metadata.name})


def _check_type(body: Mapping[object, object], place: str) -> None:
    for field, wanted in (("kind", KIND), ("apiVersion", API_VERSION)):
        given = body.get(field)
        if given is None:
            raise ManifestError(f"{place}: {field}: is required; write {field}: {wanted}")
        if given != wanted:
            shown = json.dumps(given, default=str)[:80]
            raise ManifestError(f"{place}: {field}: is {shown}; only {wanted} can be applied")


def _items(document: object, place: str) -> Iterator[tuple[str, object]]:
    if not (isinstance(document, Mapping) and document.get("kind") in _LISTS):
        yield place, document
        return
    items = document.get("items")
    if not isinstance(items, Sequence) or isinstance(items, str):
        raise ManifestError(f"{place}: items: must be a list of manifests")
    for number, item in enumerate(items, 1):
        yield f"{place}, item {number}", item


def _decoded(text: str | bytes, source: str) -> str:
    size = len(text.encode(errors="surrogatepass") if isinstance(text, str) else text)
    if size > SIZE_MAX:
        raise ManifestError(
            f"{source}: is larger than the {SIZE_MAX} bytes allowed; split it into files"
        )
    if isinstance(text, str):
        return text
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ManifestError(
            f"{source}: byte {error.start} is not UTF-8; save it as UTF-8"
        ) from None


def _documents(text: str, source: str) -> Iterator[tuple[str, object]]:
    """Each document that is not empty, with its place."""
    try:
        count = _check_shape(text, source)
        for number, document in enumerate(yaml.load_all(text, _Loader), 1):
            place = source if count == 1 else f"{source}, document {number}"
            if document is not None:
                yield place, document
    except yaml.MarkedYAMLError as error:
        line = _line(error.problem_mark or error.context_mark)
        raise ManifestError(f"{source}{line}: {_one_line(error.problem)}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if isinstance(error, ManifestError):
            raise
        raise ManifestError(f"{source}: is no YAML: {_one_line(str(error))}") from None


def _check_shape(text: str, source: str) -> int:
    """How many documents there are; refuses what grows or sinks without bound when it is built."""
    depth = count = 0
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.AliasEvent):
            told = f"*{event.anchor} is an alias; write the value out instead"
            raise ManifestError(f"{source}{_line(event.start_mark)}: {told}")
        count += isinstance(event, yaml.DocumentStartEvent)
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_MAX:
            told = f"is nested more than {DEPTH_MAX} deep"
            raise ManifestError(f"{source}{_line(event.start_mark)}: {told}")
    return count


def _line(mark: object) -> str:
    line = getattr(mark, "line", None)
    return f" line {line + 1}" if isinstance(line, int) else ""


def _one_line(problem: str | None) -> str:
    return " ".join((problem or "cannot be read as YAML").split())


class _Loader(_SafeLoader):
    """Reads YAML as Kubernetes does: times stay text, and a key may stand only once in a map."""

    def construct_mapping(self, node: yaml.Node, deep: bool = False) -> dict[Hashable, object]:
        """The map a node means; raises for a key given twice."""
        assert isinstance(node, yaml.MappingNode)
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                told = f'"{key.value}" is given twice; keep one'
                raise yaml.constructor.ConstructorError(None, None, told, key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in _SafeLoader.yaml_implicit_resolvers.items()
}
