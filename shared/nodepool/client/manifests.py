"""NodePool manifests: YAML or JSON text parsed into commands, and NodePools as documents."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import yaml
from pydantic import ValidationError

from nodepool.client.objects import Document
from nodepool.client.yaml_values import Loader
from nodepool.contract.commands import ApplyNodePool
from nodepool.contract.decode import explain
from nodepool.contract.events import NodePoolValidated
from nodepool.contract.model import API_VERSION, FINALIZER, KIND, spec_document
from nodepool.contract.moments import rfc3339
from nodepool.contract.suggest import did_you_mean
from nodepool.nats.wire.files import read_given

SUFFIXES = frozenset((".yaml", ".yml", ".json"))
"""The suffixes of the files that are read in a folder."""
STDIN = "-"
SIZE_MAX = 1024 * 1024
"""The largest file or standard input that is read, in bytes."""
FILES_MAX = 10_000
"""How many files of one folder are read at most."""
DEPTH_MAX = 64
"""How many levels deep lists and maps may be nested; the fields of a NodePool need nine levels."""
_FIELDS = frozenset(("apiVersion", "kind", "metadata", "spec", "status"))
_LISTS = frozenset(("List", "NodePoolList"))


class ManifestError(ValueError):
    """A text is not a manifest; the error names the place, the field and the fix, in one line."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of one NodePool.

    place: the file; also the document or the item, if the file has several.
    command: the command that applies the manifest, without organisation and cluster.
    """

    place: str
    command: ApplyNodePool


def read_manifests(names: Iterable[str], *, recursive: bool = False) -> list[Manifest]:
    """Return all manifests in these files, folders and standard input (`-`).

    Subfolders are read if `recursive` is set. Raises `ManifestError` if anything cannot be read.
    """
    names = list(names)
    if names.count(STDIN) > 1:
        raise ManifestError(f"{STDIN}: standard input can be read once only; name it once")
    return [
        manifest
        for name in names
        for source, content in _contents(name, recursive=recursive)
        for manifest in parse_manifests(content, source)
    ]


def standard_input() -> bytes:
    """Return the content of standard input, up to one byte more than a file may have.

    Raises `ManifestError` if standard input cannot be read.
    """
    if sys.stdin is None:
        raise ManifestError("standard input: cannot be read: it is closed")
    try:
        return sys.stdin.buffer.read(SIZE_MAX + 1)
    except OSError as error:
        raise ManifestError(f"standard input: cannot be read: {error.strerror}") from None


def _contents(name: str, *, recursive: bool) -> Iterator[tuple[str, bytes]]:
    # One byte more than allowed is read, to detect an input that is too large.
    if name == STDIN:
        yield "standard input", standard_input()
        return
    if name.startswith(("http://", "https://")):
        problem = "is an address, and nothing is fetched; use curl -fsSL ADDRESS and -f -"
        raise ManifestError(f"{name}: {problem}")
    for path in _files(Path(name), recursive=recursive):
        try:
            yield str(path), read_given(path, SIZE_MAX)
        except OSError as error:
            raise ManifestError(f"{path}: cannot be read: {error.strerror}") from None


def _files(path: Path, *, recursive: bool) -> list[Path]:
    if not path.is_dir():
        return [path]
    try:
        inside = path.rglob("*") if recursive else path.iterdir()
        matching = (file for file in inside if file.suffix in SUFFIXES and file.is_file())
        files = sorted(islice(matching, FILES_MAX + 1))
    except OSError as error:
        raise ManifestError(f"{path}: cannot be read: {error.strerror}") from None
    if len(files) > FILES_MAX:
        raise ManifestError(f"{path}: holds more than {FILES_MAX} files; name smaller folders")
    if not files:
        deeper = "" if recursive else ", or use -R to read its subfolders"
        raise ManifestError(f"{path}: contains no .yaml, .yml or .json file; name another{deeper}")
    return files


def parse_manifests(text: str | bytes, source: str) -> list[Manifest]:
    """Return the NodePools in a text of YAML documents or of JSON, in its order; at least one.

    The items of a `List` count one by one. Raises `ManifestError`, whose text begins with `source`.
    """
    manifests = [
        Manifest(place, parse_manifest(body, place))
        for place, document, _ in read_documents(text, source)
        for place, body in _items(document, place)
    ]
    if not manifests:
        raise ManifestError(f"{source}: contains no manifest; write one with kind: {KIND}")
    return manifests


def parse_yaml(text: str | bytes, source: str) -> object:
    """Return the value of one YAML document, or of JSON; None for an empty text.

    Raises `ManifestError`, whose text begins with `source`.
    """
    documents = [document for _, document, _ in read_documents(text, source)]
    if len(documents) > 1:
        raise ManifestError(f"{source}: holds {len(documents)} documents; write one")
    return documents[0] if documents else None


def parse_manifest(body: object, place: str) -> ApplyNodePool:
    """Return the command for one manifest, given as the value of its YAML.

    Raises `ManifestError`, whose text begins with `place` and names the field.
    """
    if not isinstance(body, Mapping):
        raise ManifestError(f"{place}: is not a map; begin with apiVersion: {API_VERSION}")
    _check_type(body, place)
    for field in body:
        if field not in _FIELDS:
            hint = did_you_mean(str(field), sorted(_FIELDS)) or "; remove it"
            raise ManifestError(f"{place}: {field}: is not a known field{hint}")
    try:
        text = json.dumps(body)
    except (TypeError, ValueError, RecursionError):
        raise ManifestError(f"{place}: contains a value that JSON lacks; quote it") from None
    try:
        # Parsed from JSON in strict mode, as the control plane parses a command.
        command = ApplyNodePool.model_validate_json(text, strict=True, extra="forbid")
    except ValidationError as error:
        field, cause = explain(error, ApplyNodePool)
        raise ManifestError(f"{place}: {field}: {cause}") from None
    return command.model_copy(update={"pool": command.metadata.name})


def stored_document(stored: NodePoolValidated) -> Document:
    """Return the NodePool as it was stored, without its status.

    If a user applies the document again, it is refused if the NodePool has changed since.
    """
    metadata: dict[str, object] = {
        "name": stored.pool,
        "uid": stored.uid,
        "generation": stored.generation,
        "resourceVersion": str(stored.version),
        "creationTimestamp": rfc3339(stored.created),
        "finalizers": [FINALIZER],
    }
    return _document(metadata, stored)


def desired_document(command: ApplyNodePool) -> Document:
    """Return the NodePool as a command wants it, without the fields that the control plane sets."""
    return _document({"name": command.metadata.name}, command)


def _document(metadata: dict[str, object], source: NodePoolValidated | ApplyNodePool) -> Document:
    given = source if isinstance(source, NodePoolValidated) else source.metadata
    for field, values in (("labels", given.labels), ("annotations", given.annotations)):
        if values:
            metadata[field] = dict(values)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata,
        "spec": spec_document(source.spec),
    }


def _check_type(body: Mapping[object, object], place: str) -> None:
    for field, expected in (("kind", KIND), ("apiVersion", API_VERSION)):
        given = body.get(field)
        if given is None:
            raise ManifestError(f"{place}: {field}: is required; write {field}: {expected}")
        if given != expected:
            shown = json.dumps(given, default=str)[:80]
            raise ManifestError(f"{place}: {field}: is {shown}; only {expected} can be applied")


def _items(document: object, place: str) -> Iterator[tuple[str, object]]:
    kind = document.get("kind") if isinstance(document, Mapping) else None
    if not isinstance(document, Mapping) or not isinstance(kind, str) or kind not in _LISTS:
        yield place, document
        return
    items = document.get("items")
    if not isinstance(items, Sequence) or isinstance(items, str):
        raise ManifestError(f"{place}: items: must be a list of manifests")
    for number, item in enumerate(items, 1):
        yield f"{place}, item {number}", item


def _decode_text(text: str | bytes, source: str, most: int) -> str:
    size = len(text.encode(errors="surrogatepass") if isinstance(text, str) else text)
    if size > most:
        raise ManifestError(
            f"{source}: is larger than the {most} bytes allowed; split it into files"
        )
    if isinstance(text, str):
        return text
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ManifestError(
            f"{source}: byte {error.start} is not UTF-8; save it as UTF-8"
        ) from None


def read_documents(
    text: str | bytes, source: str, most: int = SIZE_MAX
) -> Iterator[tuple[str, object, yaml.Node]]:
    """Yield the place, the value and the node of each document that is not empty.

    Raises `ManifestError`, whose text begins with `source`, if the text has more than `most` bytes
    or is not YAML.
    """
    text = _decode_text(text, source, most)
    try:
        count = _check_shape(text, source)
        loader = Loader(text)
        for number in range(1, count + 1):
            node = loader.get_node() if loader.check_node() else None
            document = None if node is None else loader.construct_document(node)
            place = source if count == 1 else f"{source}, document {number}"
            if node is not None and document is not None:
                yield place, document, node
    except yaml.MarkedYAMLError as error:
        line = _line(error.problem_mark or error.context_mark)
        raise ManifestError(f"{source}{line}: {_one_line(error.problem)}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if isinstance(error, ManifestError):
            raise
        raise ManifestError(f"{source}: is not YAML: {_one_line(str(error))}") from None


def _check_shape(text: str, source: str) -> int:
    """Return the number of documents; raise for aliases and deep nesting, which cost too much."""
    depth = count = 0
    for event in yaml.parse(text, Loader):
        if isinstance(event, yaml.AliasEvent):
            problem = f"*{event.anchor} is an alias; write the value out instead"
            raise ManifestError(f"{source}{_line(event.start_mark)}: {problem}")
        count += isinstance(event, yaml.DocumentStartEvent)
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_MAX:
            problem = f"is nested more than {DEPTH_MAX} levels deep"
            raise ManifestError(f"{source}{_line(event.start_mark)}: {problem}")
    return count


def _line(mark: object) -> str:
    line = getattr(mark, "line", None)
    return f" line {line + 1}" if isinstance(line, int) else ""


def _one_line(problem: str | None) -> str:
    return " ".join((problem or "cannot be read as YAML").split())
