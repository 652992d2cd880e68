"""The names that can be part of a subject."""

import json
import re
from typing import TYPE_CHECKING

from nodepool.client.errors import Refused

if TYPE_CHECKING:
    from nodepool.contract.messages import Command

_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")
"""At most as long as a name in Kubernetes; this keeps each subject short enough for the server."""


def check_name(field: str, name: str) -> str:
    """Return the name; raise `Refused` for the field if the name cannot be part of a subject."""
    if not _NAME.fullmatch(name):
        raise _invalid(field, name)
    return name


def find_name_refusal(command: "Command") -> Refused | None:
    """Return the refusal of a command if its names cannot be part of a subject; else None."""
    fields = ("org", "cluster", "pool") if hasattr(command, "org") else ("", "zone", "machine")
    for field, name in zip(fields, command.path, strict=True):
        if field and not _NAME.fullmatch(name):
            return _invalid("metadata.name" if field == "pool" else field, name)
    return None


def _invalid(field: str, name: str) -> Refused:
    shown = json.dumps(name[:64])
    return Refused(
        field, "Invalid", f"{shown} is not a valid name; use letters, digits, '-', '_' or '.'"
    )
