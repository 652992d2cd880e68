"""The text of `describe`, as kubectl prints it for a custom resource."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from nodepool.cli.event_table import CountedEvent, interval
from nodepool.cli.layout import align_columns, escape_text
from nodepool.cli.names import NODEPOOL
from nodepool.contract.documents import Document, field, items

ANNOTATION_MAX = 140
"""An annotation with more characters is printed on lines of its own, as kubectl does."""
EARLIER = "use --events N for more, or 'nodepool events --for TYPE/NAME' for all"
_INDENT = "  "
_SKIPPED = frozenset(
    f".metadata.{name}" for name in ("managedFields", "name", "namespace", "labels", "annotations")
)
_MOMENTS = ("checked", "progressed", "rebootedFor", "specified", "targeted")
_OF_CONDITIONS = frozenset(("observedGeneration", "logPosition"))
_HIDDEN_ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
_ACRONYMS = frozenset(("API", "URL", "UID", "OSB", "GUID"))
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|-+")
_LETTERS = re.compile(r"[A-Za-z-]+")


def format_description(
    document: Document, events: Sequence[CountedEvent] | None, now: datetime, *, name: str = ""
) -> str:
    """Return the text that kubectl prints for an object and its events, without a final newline.

    events: None for an object of a type that has no events.
    name: the name of the object, if its metadata does not contain it.
    """
    return "\n".join(body(document, name=name) + events_part(document, events, now, name=name))


def body(document: Document, *, name: str = "") -> list[str]:
    """Return the lines that kubectl prints for an object before its events."""
    return align_columns(_lines(document, name))


def change_part(document: Document, change: str, *, name: str = "") -> list[str]:
    """Return the line that says who changed an object last, in the columns of `body`."""
    return align_columns([*_lines(document, name), ["Last Change:", escape_text(change)]])[-1:]


def events_part(
    document: Document,
    events: Sequence[CountedEvent] | None,
    now: datetime,
    *,
    name: str = "",
    most: int | None = None,
) -> list[str]:
    """Return the lines that follow those of `body`; `most` limits how many events are shown."""
    if events is None:
        return []
    if not events:
        return align_columns([*_lines(document, name), ["Events:", "<none>"]])[-1:]
    shown = events if most is None else events[len(events) - min(most, len(events)) :]
    hidden = len(events) - len(shown)
    return [*_events(shown, now), *([f"{_INDENT}({hidden} earlier: {EARLIER})"] if hidden else [])]


def _lines(document: Document, name: str) -> list[list[str]]:
    shown = without_internals(document)
    return [
        ["Name:", escape_text(str(field(shown, "metadata", "name") or name))],
        ["Namespace:", ""],
        *_labels(shown),
        *_annotations(shown),
        *_content(shown, 0, ""),
    ]


def without_internals(document: Document) -> Document:
    """Return the object without the fields that the documented example of `describe` leaves out.

    These are `observedGeneration`, the `logPosition` of conditions, `grantedNodes`, the moments
    that only `explain` reads, `nodeProfile` while every Node has it, and finalizers until the
    object is being deleted.
    """
    metadata = dict(_mapping(field(document, "metadata")))
    if "deletionTimestamp" not in metadata:
        metadata.pop("finalizers", None)
    status = dict(_mapping(field(document, "status")))
    for name in ("grantedNodes", "observedGeneration", *_MOMENTS):
        status.pop(name, None)
    if "otherNodeProfiles" not in status and document.get("kind") == NODEPOOL.title:
        status.pop("nodeProfile", None)
    conditions = [
        {key: value for key, value in _mapping(shown).items() if key not in _OF_CONDITIONS}
        for shown in items(document, "status", "conditions")
    ]
    if conditions:
        status["conditions"] = conditions
    shown = {**document, "metadata": metadata, "status": status}
    # A section without fields is left out.
    empty = {"metadata": metadata.keys() <= {"name"}, "status": not status}
    return {name: part for name, part in shown.items() if not empty.get(name)}


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _labels(document: Document) -> Iterator[list[str]]:
    labels = _mapping(field(document, "metadata", "labels"))
    yield from _list_titled_lines(
        "Labels:", [f"{key}={value}" for key, value in sorted(labels.items())]
    )


def _annotations(document: Document) -> Iterator[list[str]]:
    annotations = _mapping(field(document, "metadata", "annotations"))
    shown: list[str] = []
    for key, value in sorted(annotations.items()):
        if key == _HIDDEN_ANNOTATION:
            continue
        text = str(value).removesuffix("\n")
        if len(text) + len(key) + 2 > ANNOTATION_MAX or "\n" in text:
            shown.append(f"{key}:")
            shown += [f"{_INDENT}{_cut(part)}" for part in text.split("\n")]
        else:
            shown.append(f"{key}: {text}")
    yield from _list_titled_lines("Annotations:", shown)


def _cut(text: str) -> str:
    limit = ANNOTATION_MAX - 2
    return text if len(text) <= limit else f"{text[:limit]}..."


def _list_titled_lines(title: str, values: Sequence[str]) -> Iterator[list[str]]:
    yield [title, escape_text(values[0]) if values else "<none>"]
    for value in values[1:]:
        yield ["", escape_text(value)]


def _content(fields: Mapping[str, object], level: int, path: str) -> Iterator[list[str]]:
    for key, value in sorted(fields.items()):
        key_path = f"{path}.{key}"
        if key_path in _SKIPPED:
            continue
        name = f"{_INDENT * level}{escape_text(label(key))}:"
        match value:
            case Mapping():
                yield [name]
                yield from _content(value, level + 1, key_path)
            case list() | tuple():
                yield [name]
                yield from _list(value, level + 1, key_path)
            case _:
                yield [name, _scalar(value)]


def _list(values: Sequence[object], level: int, path: str) -> Iterator[list[str]]:
    for item in values:
        if isinstance(item, Mapping):
            yield from _content(item, level, path)
        else:
            yield [f"{_INDENT * level}{_scalar(item)}"]


def _scalar(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case None:
            return "<nil>"
    return escape_text(str(value))


def label(name: str) -> str:
    """Return a field name as words: `targetNodes` becomes `Target Nodes`, `uid` becomes `UID`."""
    if not _LETTERS.fullmatch(name):
        return name
    return " ".join(
        word.upper() if word.upper() in _ACRONYMS else word[:1].upper() + word[1:]
        for word in _WORDS.findall(name)
    )


def _events(events: Sequence[CountedEvent], now: datetime) -> list[str]:
    header = ["Type", "Reason", "Age", "From", "Message"]
    rows = [
        [event.severity, event.reason, interval(event, now), event.component, event.message.strip()]
        for event in events
    ]
    rules = ["----", "------", "----", "----", "-------"]
    lines = [header, rules, *rows]
    indented = [[f"{_INDENT}{first}", *map(escape_text, rest)] for first, *rest in lines]
    return ["Events:", *align_columns(indented)]
