"""Patches of documents with a list of operations: JSON Patch (RFC 6902).

See https://www.rfc-editor.org/rfc/rfc6902. A document that is patched is never modified; the result
shares its unchanged parts.
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
