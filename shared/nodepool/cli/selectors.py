"""Selecting objects by their labels.

The syntax is that of https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/
without the set-based operators `in` and `notin`.
"""

import re
from collections.abc import Mapping

import click

from nodepool.cli.documents import Document, labels

_REQUIREMENT = re.compile(r"(!?)([^=!\s]+)(?:(==|=|!=)([^=!\s]*))?")


def selects(selector: str, document: Document) -> bool:
    """Whether an object's labels satisfy a selector such as `k=v,k!=v,k,!k`.

    The empty selector selects everything. Raises a usage error for one that cannot be read.
    """
    own = labels(document)
    return all(_is_met(text, own) for text in selector.split(",") if selector)


def _is_met(text: str, own: Mapping[str, str]) -> bool:
    requirement = _REQUIREMENT.fullmatch(text.strip())
    if requirement is None or (requirement[1] and requirement[3]):
        raise click.UsageError(f"--selector: {text!r} is not a label selector; write key=value")
    negated, key, operator, value = requirement.groups()
    if operator is None:
        return (key in own) != bool(negated)
    return (own.get(key) == value) == (operator != "!=")
