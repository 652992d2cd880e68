"""Patches of documents: JSON Merge Patch (RFC 7396) and JSON Patch (RFC 6902).

See https://www.rfc-editor.org/rfc/rfc7396 and https://www.rfc-editor.org/rfc/rfc6902. A document
that is patched is never modified; the result shares its unchanged parts.
"""

from collections.abc import Mapping, Sequence

from jsonpatch import (
    JsonPatch,
    JsonPatchException,
    JsonPatchPathNotFound,
    JsonPatchTestFailed,
    JsonPointerException,
)

Json = object


class PatchError(ValueError):
    """A patch cannot be applied; the text is one clause that names the operation and the path."""


def apply_merge_patch(document: Json, patch: Json) -> Json:
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
            result[key] = apply_merge_patch(result.get(key), value)
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


def apply_json_patch(document: Json, operations: Json) -> Json:
    """Return a document after the operations of a JSON patch.

    Raises `PatchError` if an operation fails.
    """
    if not isinstance(operations, Sequence) or isinstance(operations, str):
        raise PatchError("a JSON patch is a list of operations")
    for number, operation in enumerate(operations):
        if not isinstance(operation, Mapping):
            raise PatchError(f"operation {number} is not a map")
        try:
            document = JsonPatch([operation]).apply(document)
        except (JsonPatchException, JsonPointerException) as error:
            raise PatchError(f"operation {number}: {_cause(operation, error)}") from None
    return document


def _cause(operation: Mapping[str, Json], error: Exception) -> str:
    """Return why an operation failed, without the text of the whole document."""
    path = operation.get("path")
    match error:
        case JsonPatchTestFailed():
            return f"the value at {path} is not that of the test"
        case JsonPatchPathNotFound() | JsonPointerException() if str(path).startswith("/"):
            source = f", or {operation['from']}" if "from" in operation else ""
            return f"the object has no {path}{source}"
        case JsonPointerException():
            return "path must be a JSON pointer such as /spec/targetNodes"
    return str(error)
