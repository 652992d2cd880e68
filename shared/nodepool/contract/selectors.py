"""Select objects by their labels and fields.

Label selectors have the syntax of
https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/. Field selectors have the
syntax of https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from nodepool.contract.documents import Document, field, labels

SELECTOR_MAX = 1_000
"""The most characters of a selector."""
_KEY = r"([A-Za-z0-9](?:[\w./-]*[A-Za-z0-9])?)"
_EXISTS = re.compile(rf"(!?)\s*{_KEY}")
_EQUALS = re.compile(rf"{_KEY}\s*(==|=|!=)\s*([\w.-]*)")
_ORDERED = re.compile(rf"{_KEY}\s*([<>])\s*([+-]?\d+)")
_AMONG = re.compile(rf"{_KEY}\s+(in|notin)\s*\(([^()]*)\)", re.IGNORECASE)
_SEPARATOR = re.compile(r",(?![^(]*\))")
_FIELD = re.compile(r"([A-Za-z][\w.-]*)\s*(==|=|!=)\s*(.*)")
_LABELS_HELP = "write KEY=VALUE, KEY!=VALUE, KEY in (A,B), KEY notin (A,B), KEY or !KEY"


class SelectorError(ValueError):
    """A selector cannot be read; the text quotes the faulty part and says what to write."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement for one label.

    operator: `in`, `notin`, `exists`, `!exists`, `>` or `<`.
    """

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def is_met(self, own: Mapping[str, str]) -> bool:
        """Return whether labels satisfy it; as in Kubernetes, a missing label is `notin` all."""
        value = own.get(self.key)
        match self.operator:
            case "exists":
                return value is not None
            case "!exists":
                return value is None
            case "in":
                return value in self.values
            case "notin":
                return value not in self.values
        try:
            actual, limit = int(value or ""), int(next(iter(self.values)))
        except ValueError:
            return False
        return actual > limit if self.operator == ">" else actual < limit


def selects(selector: str, document: Document) -> bool:
    """Return whether an object's labels satisfy a selector such as `k=v,k!=v,k in (a,b),k,!k`.

    The empty selector selects everything. Raises SelectorError for a selector that cannot be read.
    """
    requirements = _requirements(selector)
    own = labels(document) if requirements else {}
    return all(requirement.is_met(own) for requirement in requirements)


@lru_cache(maxsize=64)
def _requirements(selector: str) -> Sequence[Requirement]:
    if not selector.strip():
        return ()
    return tuple(_requirement(text.strip()) for text in _SEPARATOR.split(selector))


def _requirement(text: str) -> Requirement:
    if match := _AMONG.fullmatch(text):
        values = frozenset(value.strip() for value in match[3].split(","))
        return Requirement(match[1], match[2].lower(), values)
    if match := _EQUALS.fullmatch(text):
        operator = "notin" if match[2] == "!=" else "in"
        return Requirement(match[1], operator, frozenset((match[3],)))
    if match := _ORDERED.fullmatch(text):
        return Requirement(match[1], match[2], frozenset((match[3],)))
    if match := _EXISTS.fullmatch(text):
        return Requirement(match[2], f"{match[1]}exists")
    raise SelectorError(f"{text!r} is not a label selector; {_LABELS_HELP}")


def has_fields(selector: str, document: Document) -> bool:
    """Return whether an object satisfies a field selector, `metadata.name=a,spec.x!=b`.

    A missing field has the empty value. The empty selector selects everything. Raises
    SelectorError for a selector that cannot be read.
    """
    return all(
        (_value(document, path) == value) is (operator != "!=")
        for path, operator, value in _field_requirements(selector)
    )


def field_paths(selector: str) -> list[str]:
    """Return the fields that a field selector names; raise SelectorError for an invalid one."""
    return [path for path, _, _ in _field_requirements(selector)]


@lru_cache(maxsize=64)
def _field_requirements(selector: str) -> Sequence[tuple[str, str, str]]:
    if not selector.strip():
        return ()
    requirements = []
    for text in selector.split(","):
        match = _FIELD.fullmatch(text.strip())
        if match is None:
            raise SelectorError(
                f"{text!r} is not a field selector; write metadata.name=NAME,"
                " or another field with = or !="
            )
        requirements.append((match[1], match[2], match[3].strip()))
    return tuple(requirements)


def _value(document: Document, path: str) -> str:
    value = field(document, *path.split("."))
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
