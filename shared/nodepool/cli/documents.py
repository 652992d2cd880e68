"""Reading Kubernetes-shaped objects without knowing which fields they have."""

from collections.abc import Mapping, Sequence

Document = Mapping[str, object]


def field(document: object, *path: str) -> object:
    """What lies at a path of field names; None where it ends early."""
    found = document
    for name in path:
        if not isinstance(found, Mapping):
            return None
        found = found.get(name)
    return found


def text(document: object, *path: str) -> str:
    """The value at a path as text; empty where there is none."""
    found = field(document, *path)
    return "" if found is None else str(found)


def items(document: object, *path: str) -> Sequence[object]:
    """The list at a path; empty where there is none."""
    found = field(document, *path)
    return found if isinstance(found, Sequence) and not isinstance(found, str) else ()


def labels(document: object) -> Mapping[str, str]:
    """The labels of an object."""
    found = field(document, "metadata", "labels")
    if not isinstance(found, Mapping):
        return {}
    return {str(key): str(value) for key, value in found.items()}


def condition(document: object, kind: str, of: str) -> str:
    """The field `of` of a condition; empty where the object has no such condition."""
    for known in items(document, "status", "conditions"):
        if field(known, "type") == kind:
            return text(known, of)
    return ""
