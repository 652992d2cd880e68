"""Inputs of the quota service and what it proposes for them, for tests that need no bus."""

from collections.abc import Iterable
from datetime import UTC, datetime

from nodepool.contract.commands import SetQuota
from nodepool.contract.log import Entry
from nodepool.contract.messages import envelope_of
from nodepool.contract.subjects import subject_of
from nodepool.engine.proposal import Proposal
from nodepool.engine.replica import Replica
from nodepool.engine.wakes import CLOCK, wake
from quota import Hears
from quota.decide import SERVICE
from quota.state import State
from support.constants import H100, ZONE

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
FAR_FUTURE = datetime(2100, 1, 1, tzinfo=UTC)


def command_entry(
    position: int, *, trace: str | None = None, content: bytes | None = None
) -> Entry:
    """A command that quota accepts, at this position of the log; `content` replaces its own."""
    id = f"c{position}"
    command = SetQuota(org="acme", zone=ZONE, instance_type=H100, limit=5)
    envelope = envelope_of(SetQuota).model_construct(
        id=id, type="SetQuota", source="me", traceparent=trace, data=command
    )
    body = envelope.encode() if content is None else content
    return Entry(position, NOON, subject_of(command, ""), body, {"Nats-Msg-Id": id})


def wake_entry(position: int) -> Entry:
    """A `Wake` before its time, to which quota has no output."""
    envelope = wake("quota", FAR_FUTURE, 0)
    return Entry(position, NOON, subject_of(envelope.data, CLOCK), envelope.encode(), {})


def proposed(
    trace: str | None = None,
    content: bytes | None = None,
    also: Iterable[Entry] = (),
    position: int = 7,
) -> Proposal[State, Hears]:
    """What quota proposes for the command at this position, and other entries after it."""
    replica = Replica(SERVICE)
    for entry in (command_entry(position, trace=trace, content=content), *also):
        replica.read(entry)
    proposal = replica.propose()
    assert proposal is not None
    return proposal
