"""Reading fields of Kubernetes-shaped objects, any of which may be missing."""

from collections.abc import Mapping, Sequence

Document = Mapping[str, object]


def field(document: object, *path: str) -> object:
    """Return the value at a path of field names; None if a part of the path is missing."""
    value = document
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def text(document: object, *path: str) -> str:
    """Return the value at a path as text; empty if the value is missing."""
    value = field(document, *path)
    return "" if value is None else str(value)


def items(document: object, *path: str) -> Sequence[object]:
    """Return the list at a path; empty if the list is missing."""
    value = field(document, *path)
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def labels(document: object) -> Mapping[str, str]:
    """Return the labels of an object."""
    value = field(document, "metadata", "labels")
    if not isinstance(value, Mapping):
        return {}
    return {str(key): str(label) for key, label in value.items()}


def label(document: object, key: str) -> str:
    """Return one label of an object; empty if the object does not have the label."""
    return text(field(document, "metadata", "labels"), key)


def condition(document: object, kind: str, name: str) -> str:
    """Return the field `name` of the condition of type `kind`; empty if it is missing."""
    for candidate in items(document, "status", "conditions"):
        if field(candidate, "type") == kind:
            return text(candidate, name)
    return ""
