"""What a check of the doctor reports."""

from dataclasses import dataclass
from typing import Literal

from nodepool.client.errors import ClientError
from nodepool.nats.wire.errors import Conflict, InDoubt, ServerRefusal
from nodepool.nats.wire.library import NatsError

Status = Literal["ok", "note", "problem"]
FAULTS = (ServerRefusal, InDoubt, Conflict, NatsError, OSError, ClientError)
"""The exceptions that stop a check; a check that waits for too long raises TimeoutError."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check has to report.

    check: what was checked.
    status: whether it is as it should be; a note is worth knowing, but is not a fault.
    text: what was found, as one line.
    fix: what to do; empty if there is nothing to do.
    """

    check: str
    status: Status
    text: str
    fix: str = ""


def ok(check: str, text: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(check, "ok", text)


def note(check: str, text: str, fix: str = "") -> Finding:
    """Return a finding that is worth knowing, but is not a problem."""
    return Finding(check, "note", text, fix)


def problem(check: str, text: str, fix: str) -> Finding:
    """Return a finding that something is wrong, and how to fix it."""
    return Finding(check, "problem", text, fix)


def fault_of(check: str, error: Exception) -> Finding:
    """Return a problem that says why a check could not be made."""
    fix = "check that the server runs, and that this user has the permissions of a service"
    reason = "no reply in time" if isinstance(error, TimeoutError) else str(error)
    return problem(check, f"cannot be looked at: {reason or type(error).__name__}", fix)
