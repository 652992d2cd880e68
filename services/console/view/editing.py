"""Editing a NodePool: its form, the changes, and the changes of other users meanwhile."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final, Literal

from console.view.forms import Form, list_labels, list_taints, number_in
from nodepool.contract.documents import Document, field, items, text
from nodepool.contract.merging import apply_merge_patch, merge_patch

LINES_MAX: Final = 2_000
"""The most lines of a manifest that are compared."""
VERSIONS: Final = ("resourceVersion", "generation")
"""The fields of the metadata that change with every change."""
NOT_SET: Final = "not set"
Path = tuple[str, ...]


def fill_form(document: Document) -> Form:
    """Return the form of a NodePool, from its manifest."""
    spec = field(document, "spec")
    racks = field(spec, "targetRacks")
    given = {
        "name": text(document, "metadata", "name"),
        "type": text(spec, "instanceType"),
        "class": text(spec, "computeClass") or "default",
        "how": "auto" if field(spec, "autoscaling") is True else "fixed",
        "target": _shown(racks if racks is not None else field(spec, "targetNodes")),
        "least": _shown(field(spec, "minNodes")),
        "most": _shown(field(spec, "maxNodes")),
        "shrink": text(spec, "lifecycle", "scaleDownStrategy") or "IdleOnly",
        "labels": ", ".join(f"{name}={value}" for name, value in _labels(spec).items()),
        "taints": ", ".join(map(_taint, items(spec, "nodeTaints"))),
    }
    return Form(given)


def _shown(value: object) -> str:
    return str(value) if isinstance(value, int | str) else ""


def _labels(spec: object) -> Mapping[str, object]:
    found = field(spec, "nodeLabels")
    return found if isinstance(found, Mapping) else {}


def _taint(taint: object) -> str:
    value = text(taint, "value")
    return f"{text(taint, 'key')}{f'={value}' if value else ''}:{text(taint, 'effect')}"


def change_document(document: Document, form: Form) -> Document:
    """Return a manifest with the values of a form; fields that the form lacks stay as they are."""
    before, spec = fill_form(document), field(document, "spec")
    patch = {
        key: value
        for name, key, value in _fields(form, spec)
        if form.value(name) != before.value(name)
    }
    return _patched(document, {"spec": patch}) if patch else document


def _patched(document: Document, patch: object) -> Document:
    result = apply_merge_patch(document, patch)
    assert isinstance(result, dict), "a map stays a map"
    return result


def _fields(form: Form, spec: object) -> Iterator[tuple[str, str, object]]:
    """Yield each field of the form, with the field of the spec and its new value."""
    target = "targetRacks" if field(spec, "targetRacks") is not None else "targetNodes"
    yield "target", target, number_in(form.value("target"))
    yield "how", "autoscaling", form.value("how") == "auto"
    yield "least", "minNodes", number_in(form.value("least")) if form.value("least") else None
    yield "most", "maxNodes", number_in(form.value("most")) if form.value("most") else None
    yield "shrink", "lifecycle", {"scaleDownStrategy": form.value("shrink")}
    labels = list_labels(form)
    # A merge patch removes a label only by name.
    gone = dict.fromkeys(_labels(spec).keys() - labels.keys())
    yield "labels", "nodeLabels", {**labels, **gone} if labels else None
    yield "taints", "nodeTaints", list_taints(form) or None


@dataclass(frozen=True, slots=True)
class Difference:
    """A field that another user changed: as it was opened, as it is now, and as it was typed.

    clashes: whether the typed value is neither the opened nor the present value.
    """

    path: str
    opened: str
    now: str
    typed: str
    clashes: bool


@dataclass(frozen=True, slots=True)
class Merge:
    """The newest manifest with the typed changes, and the fields that other users changed."""

    document: Document
    others: tuple[Difference, ...]

    @property
    def has_clash(self) -> bool:
        """Return whether a field was changed to different values."""
        return any(each.clashes for each in self.others)


def merge(opened: Document, newest: Document, typed: Document) -> Merge:
    """Return the newest manifest with the changes that were typed into an opened one."""
    own, others = _changes(opened, typed), _changes(opened, newest)
    differences = tuple(
        Difference(
            ".".join(path),
            _value(opened, path),
            _value(newest, path),
            _value(typed, path),
            _value(typed, path) not in (_value(opened, path), _value(newest, path)),
        )
        for path in _leaves(others)
    )
    return Merge(_patched(newest, own), differences)


def _changes(before: Document, after: Document) -> Mapping[str, object]:
    """Return a merge patch without the versions."""
    patch = merge_patch(before, after)
    metadata = patch.get("metadata")
    if isinstance(metadata, Mapping):
        kept = {name: value for name, value in metadata.items() if name not in VERSIONS}
        patch["metadata"] = kept
    return patch


def _leaves(patch: object, path: Path = ()) -> Iterator[Path]:
    if isinstance(patch, Mapping):
        for name, value in patch.items():
            yield from _leaves(value, (*path, str(name)))
    else:
        yield path


def _value(document: object, path: Path) -> str:
    """Return the value of a field as text."""
    value = field(document, *path)
    if value is None:
        return NOT_SET
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Lines of a manifest that stay, are added, or are removed."""

    kind: Literal["", "add", "del"]
    lines: tuple[str, ...]


def compare_texts(before: str, after: str) -> Sequence[Stretch]:
    """Return the lines of two texts as one list, with removed lines before added lines."""
    old, new = before.splitlines()[:LINES_MAX], after.splitlines()[:LINES_MAX]
    found = list[Stretch]()
    for kind, first, last, begin, end in SequenceMatcher(None, old, new, False).get_opcodes():
        if kind == "equal":
            found.append(Stretch("", tuple(new[begin:end])))
            continue
        if first < last:
            found.append(Stretch("del", tuple(old[first:last])))
        if begin < end:
            found.append(Stretch("add", tuple(new[begin:end])))
    return found
