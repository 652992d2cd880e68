"""The state that `wait` waits for, parsed from its option `--for`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import click

from nodepool.contract.documents import Document, condition, field, items

if TYPE_CHECKING:
    from nodepool.cli.jsonpath import Path

STATUSES = {"true": "True", "false": "False", "unknown": "Unknown"}
FORMS = "condition=TYPE[=STATUS], jsonpath='{.PATH}'[=VALUE], create or delete"


@dataclass(frozen=True, slots=True)
class Awaited:
    """A state to wait for.

    event: what must happen: a change to the state that `is_met` tests, a creation or a deletion.
    is_met: returns whether an object is in the state.
    what: the state in words, for an error message.
    instead: returns the state that an object has instead, in words; empty if not known.
    """

    event: Literal["change", "create", "delete"]
    is_met: Callable[[Document], bool] = lambda _: True
    what: str = ""
    instead: Callable[[Document], str] = lambda _: ""


def parse_awaited(until: str) -> Awaited:
    """Return the state that `--for` names; raise a usage error for any other text."""
    word, _, rest = until.partition("=")
    match word:
        case "create" | "delete" if until == word:
            return Awaited(word)
        case "condition" if rest:
            return _condition(rest)
        case "jsonpath" if rest:
            return _jsonpath(rest)
    raise click.UsageError(f"--for: {until!r} is not supported; write {FORMS}")


def _condition(text: str) -> Awaited:
    from nodepool.client.objects import has_condition

    kind, _, wanted = text.partition("=")
    status = STATUSES.get((wanted or "true").lower())
    if not kind:
        raise click.UsageError(f"--for: 'condition={text}' names no condition; write {FORMS}")
    if status is None:
        raise click.UsageError(f"--for: {wanted!r} is not a status; use True, False or Unknown")
    return Awaited(
        "change",
        lambda document: has_condition(document, kind, status),
        f"{kind}={status}",
        lambda document: present_condition(document, kind),
    )


def present_condition(document: Document, kind: str) -> str:
    """Return what an object says of a condition, or its conditions if that one is missing."""
    types = [str(field(each, "type")) for each in items(document, "status", "conditions")]
    own = next((each for each in types if each.lower() == kind.lower()), None)
    if own is None:
        return f"it has the conditions {', '.join(types)}" if types else "it has no conditions"
    status, reason = condition(document, own, "status"), condition(document, own, "reason")
    return f"it is {status} ({reason}): {condition(document, own, 'message')}"


def _jsonpath(text: str) -> Awaited:
    from nodepool.cli.jsonpath import JsonPathError
    from nodepool.cli.jsonpath_parser import parse_path

    path_text, value = _split(text)
    try:
        path = parse_path(path_text)
    except JsonPathError as error:
        raise click.UsageError(f"--for: jsonpath: {error}") from None
    return Awaited(
        "change",
        lambda document: _has_value(document, path, value),
        path_text if value is None else f"{path_text}={value}",
        lambda document: f"it is {_value(document, path) or 'missing'}",
    )


def _split(text: str) -> tuple[str, str | None]:
    """Return the path and the value in `{.path}=value`; the value is None if it is missing."""
    end = text.rfind("}")
    if not text.startswith("{") or end < 0:
        path, sign, value = text.partition("=")
    else:
        path, (sign, value) = text[: end + 1], (text[end + 1 : end + 2], text[end + 2 :])
    if sign not in ("", "=") or (sign and not value):
        raise click.UsageError(f"--for: 'jsonpath={text}' has no value; write {FORMS}")
    return path, value.strip("'\"") if sign else None


def _value(document: Document, path: "Path") -> str:
    from nodepool.cli.jsonpath import JsonPathError, text_of

    try:
        return " ".join(map(text_of, path.find(document)))
    except JsonPathError:
        return ""


def _has_value(document: Document, path: "Path", value: str | None) -> bool:
    present = _value(document, path)
    return bool(present) if value is None else present == value
