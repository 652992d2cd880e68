"""Patches of documents: JSON Merge Patch (RFC 7396) and JSON Patch (RFC 6902).

See https://www.rfc-editor.org/rfc/rfc7396 and https://www.rfc-editor.org/rfc/rfc6902. A document
that is patched is never modified; the result shares its unchanged parts.
"""

from collections.abc import Mapping, Sequence

Json = object


class PatchError(ValueError):
    """A patch cannot be applied; the text is one clause that names the operation and the path."""


def merged(document: Json, patch: Json) -> Json:
    """Return a document after a merge patch.

    Maps are merged, null removes a field, and any other value replaces the old value.
    """
    if not isinstance(patch, Mapping):
        return patch
    result = dict(document) if isinstance(document, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def merge_patch(before: Mapping[str, Json], after: Mapping[str, Json]) -> dict[str, Json]:
    """Return the smallest merge patch that turns `before` into `after`."""
    patch: dict[str, Json] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            inner = merge_patch(old, value)
            if inner:
                patch[key] = inner
        elif key not in before or old != value:
            patch[key] = value
    return patch


def conflicts(first: Json, second: Json, path: str = "") -> list[str]:
    """Return the paths of fields to which two merge patches give different values."""
    if first == second:
        return []
    if not (isinstance(first, Mapping) and isinstance(second, Mapping)):
        return [path]
    return [
        clash
        for key in first
        if key in second
        for clash in conflicts(first[key], second[key], f"{path}.{key}" if path else str(key))
    ]


def patched(document: Json, operations: Json) -> Json:
    """Return a document after the operations of a JSON patch.

    Raises `PatchError` if an operation fails.
    """
    if not isinstance(operations, Sequence) or isinstance(operations, str):
        raise PatchError("a JSON patch is a list of operations")
    for number, operation in enumerate(operations):
        if not isinstance(operation, Mapping):
            raise PatchError(f"operation {number} is not a map")
        try:
            document = _operated(document, operation)
        except PatchError as error:
            raise PatchError(f"operation {number}: {error}") from None
    return document


def _operated(document: Json, operation: Mapping[str, Json]) -> Json:
    path = _pointer(operation, "path")
    match operation.get("op"):
        case "add":
            return _added(document, path, _value(operation))
        case "remove":
            return _removed(document, path)
        case "replace":
            _resolved(document, path)
            return _value(operation) if not path else _replaced(document, path, _value(operation))
        case "move":
            source = _pointer(operation, "from")
            moved = _resolved(document, source)
            if path[: len(source)] == source and len(path) > len(source):
                raise PatchError(f"{_shown(source)} cannot be moved into itself")
            return _added(_removed(document, source), path, moved)
        case "copy":
            return _added(document, path, _resolved(document, _pointer(operation, "from")))
        case "test":
            if not _same(_resolved(document, path), _value(operation)):
                raise PatchError(f"the value at {_shown(path)} is another")
            return document
    raise PatchError("op must be add, remove, replace, move, copy or test")


def _pointer(operation: Mapping[str, Json], field: str) -> list[str]:
    """Return the tokens of a JSON pointer (https://www.rfc-editor.org/rfc/rfc6901)."""
    text = operation.get(field)
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise PatchError(f"{field} must be a JSON pointer such as /spec/targetNodes")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _value(operation: Mapping[str, Json]) -> Json:
    if "value" not in operation:
        raise PatchError("value is required")
    return operation["value"]


def _resolved(document: Json, path: Sequence[str]) -> Json:
    for depth, token in enumerate(path):
        match document:
            case Mapping() if token in document:
                document = document[token]
            case list() if _index(token, len(document)) is not None:
                document = document[int(token)]
            case _:
                raise PatchError(f"there is nothing at {_shown(path[: depth + 1])}")
    return document


def _index(token: str, length: int) -> int | None:
    is_number = token.isdecimal() and token.isascii() and (token == "0" or token[0] != "0")
    return int(token) if is_number and len(token) < 10 and int(token) < length else None


def _added(document: Json, path: Sequence[str], value: Json) -> Json:
    if not path:
        return value
    parent, last = _resolved(document, path[:-1]), path[-1]
    if isinstance(parent, Mapping):
        return _replaced(document, path[:-1], {**parent, last: value})
    if isinstance(parent, list):
        position = len(parent) if last == "-" else _index(last, len(parent) + 1)
        if position is not None:
            grown = [*parent[:position], value, *parent[position:]]
            return _replaced(document, path[:-1], grown)
    raise PatchError(f"nothing can be added at {_shown(path)}")


def _removed(document: Json, path: Sequence[str]) -> Json:
    _resolved(document, path)
    if not path:
        raise PatchError("the whole object cannot be removed")
    parent, last = _resolved(document, path[:-1]), path[-1]
    if isinstance(parent, Mapping):
        left: Json = {key: value for key, value in parent.items() if key != last}
    else:
        assert isinstance(parent, list), "a value was found in it"
        left = [*parent[: int(last)], *parent[int(last) + 1 :]]
    return _replaced(document, path[:-1], left)


def _replaced(document: Json, path: Sequence[str], value: Json) -> Json:
    """Return the document with another value at a path that exists, or whose parent is a map."""
    if not path:
        return value
    first, rest = path[0], path[1:]
    if isinstance(document, Mapping):
        return {**document, first: _replaced(document.get(first), rest, value)}
    assert isinstance(document, list), "the path was resolved"
    position = int(first)
    inner = _replaced(document[position], rest, value)
    return [*document[:position], inner, *document[position + 1 :]]


def _same(first: Json, second: Json) -> bool:
    """Return whether two JSON values are equal; unlike in Python, true is not 1."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(
            _same(first[key], second[key]) for key in first
        )
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_same, first, second))
    return isinstance(first, bool) == isinstance(second, bool) and first == second


def _shown(path: Sequence[str]) -> str:
    return "/" + "/".join(path)
