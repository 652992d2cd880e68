"""Preemptions as `get preemptions` shows them."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from nodepool.cli.times import human, moment
from nodepool.contract.documents import Document, field

if TYPE_CHECKING:
    from nodepool.client import Preemption


def preemption_document(preemption: "Preemption") -> Document:
    """Return a preemption as an object; stages that have not come yet are left out.

    The lateness is in seconds, for each stage that came at its moment or after it.
    """
    status: dict[str, object] = {"phase": _phase(preemption), "pending": _time(preemption.began)}
    if preemption.drained is not None:
        status["inProgress"] = _time(preemption.drained)
    if preemption.gone is not None:
        status["deleted"] = _time(preemption.gone)
        status["lostPods"] = preemption.lost
    late = {"drain": preemption.drain_late, "end": preemption.end_late}
    status["latenessSeconds"] = {
        stage: round(delay.total_seconds(), 3) for stage, delay in late.items() if delay is not None
    }
    spec = {"node": preemption.node, "nodePool": preemption.pool, "cause": preemption.cause}
    if preemption.beneficiary:
        spec["beneficiary"] = preemption.beneficiary
    return {
        "kind": "Preemption",
        "metadata": {
            "name": f"{preemption.node}.{preemption.position:x}",
            "creationTimestamp": _time(preemption.began),
        },
        "spec": spec,
        "status": status,
    }


def _phase(preemption: "Preemption") -> str:
    if preemption.gone is not None:
        return "Deleted"
    return "InProgress" if preemption.drained is not None else "Pending"


def _time(time: datetime) -> str:
    """Return a moment to the millisecond, in UTC."""
    return f"{time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def after(document: Document, stage: str) -> str:
    """Return how long after its warning a stage came, as `2m0s`; empty before that."""
    status = field(document, "status")
    if not isinstance(status, dict):
        return ""
    began, came = (moment(str(status.get(each, ""))) for each in ("pending", stage))
    if began is None or came is None:
        return ""
    return human(max(came - began, timedelta()).total_seconds())


def lateness(document: Document) -> str:
    """Return the longest delay of the stages in seconds, as `0.04s`; empty if none is known."""
    delays = field(document, "status", "latenessSeconds")
    values = delays.values() if isinstance(delays, dict) else ()
    known = [each for each in values if isinstance(each, int | float)]
    return f"{max(known):.2f}s" if known else ""
