"""Commands as `audit` and `describe` print them: when, who, from where, what, and the outcome."""

from typing import TYPE_CHECKING

from nodepool.contract.moments import rfc3339

if TYPE_CHECKING:
    from nodepool.client.audit import CommandRecord
    from nodepool.client.usage import Usage
    from nodepool.contract.documents import Document

HEADINGS = ("TIME", "ACTOR", "ROLE", "FROM", "COMMAND", "OBJECT", "OUTCOME")
USAGE = ("ORG", "BYTES OF LAST HOUR", "BUDGET", "USED")
WIDE = ("POSITION", *HEADINGS[:-1], "CLUSTER", "PROGRAM", "ID", "OUTCOME")
ABSENT = "-"
WAITING = "none yet"


def cells(record: "CommandRecord", *, wide: bool) -> list[str]:
    """Return the cells of a command in a table."""
    actor = record.actor
    # The server stamps only what comes through the gateway; the rest is what the sender says.
    said = f"({record.source})" if record.source else ABSENT
    shown = [
        rfc3339(record.time),
        record.user,
        *((actor.role, actor.host) if actor else (ABSENT, said)),
        record.command,
        f"{record.kind}/{record.name}",
    ]
    if wide:
        cluster = "/".join(part for part in record.path[:2] if part != "_")
        shown = [str(record.position), *shown, cluster, record.source or ABSENT, record.id]
    return [*shown, outcome_text(record)]


def outcome_text(record: "CommandRecord") -> str:
    """Return what became of a command: `accepted: configured`, or why it was refused."""
    outcome = record.outcome
    if outcome is None:
        return WAITING
    parts = (outcome.result, outcome.detail, outcome.field, outcome.message)
    return ": ".join(part for part in parts if part)


def change_text(record: "CommandRecord") -> str:
    """Return who sent a command, when and from where, as one phrase."""
    actor = record.actor
    origin = f" (who says: {record.source})" if record.source else ""
    if actor is not None:
        origin = f" ({actor.role}) from {actor.host}"
    return f"{record.command} by {record.user}{origin} at {rfc3339(record.time)}"


def usage_document(usage: "Usage") -> "Document":
    """Return what an organisation has stored as an object."""
    return {
        "kind": "StorageUsage",
        "metadata": {"name": usage.org},
        "status": {"storedBytes": usage.stored, "bytesPerHour": usage.budget},
    }


def usage_cells(usage: "Usage") -> list[str]:
    """Return the cells of what an organisation has stored in a table."""
    share = f"{usage.stored / usage.budget:.1%}" if usage.budget else ABSENT
    return [usage.org, str(usage.stored), str(usage.budget), share]


def document(record: "CommandRecord") -> "Document":
    """Return a command as an object."""
    actor, outcome = record.actor, record.outcome
    org, cluster, _ = (None if part == "_" else part for part in record.path)
    sender: dict[str, object] = {"name": record.user}
    if actor is not None:
        sender |= {"org": actor.org, "user": actor.user, "role": actor.role, "address": actor.host}
    result: dict[str, object] = {}
    if outcome is not None:
        result = {"outcome": outcome.result, "detail": outcome.detail}
        if outcome.is_refusal:
            result |= {"field": outcome.field, "message": outcome.message}
    return {
        "kind": "CommandRecord",
        "metadata": {"name": str(record.position), "creationTimestamp": rfc3339(record.time)},
        "spec": {
            "actor": sender,
            "command": record.command,
            "org": org,
            "cluster": cluster,
            "object": {"kind": record.kind, "name": record.name},
            "id": record.id,
            "program": record.source,
        },
        "status": result,
    }
