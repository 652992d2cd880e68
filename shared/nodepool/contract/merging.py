"""Changes of documents as JSON Merge Patch (RFC 7396), and conflicts of two changes.

See https://www.rfc-editor.org/rfc/rfc7396. A document that is patched is never modified; the result
shares its unchanged parts.
"""

from collections.abc import Mapping

Json = object


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
