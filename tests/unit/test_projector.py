"""When a replica writes the read model, and when it leaves that to another one."""

from typing import Never

import pytest

from aggregator import Hears
from aggregator.decide import SERVICE as AGGREGATOR
from aggregator.state import State
from nodepool.contract.events import QuotaSet
from nodepool.contract.log import Entry, LogId
from nodepool.contract.messages import envelope_of
from nodepool.contract.subjects import subject_of
from nodepool.engine.proposal import Proposal
from nodepool.engine.replica import Replica
from nodepool.host.projector import SWEEP_AFTER_S, Projector, writer_for
from nodepool.nats.log.publisher import Bus, Publisher
from nodepool.nats.objects.read_model import ReadModelWriter
from nodepool.nats.objects.stored_objects import ObjectKey
from nodepool.nats.wire.connection import Connection
from quota.decide import SERVICE as QUOTA
from support.constants import H100, ZONE
from support.proposals import NOON, proposed


def ignored(_key: ObjectKey, _cause: str) -> None:
    """Does nothing about an object that cannot be stored."""


def unreported(_cause: str, _count: int) -> None:
    """Does nothing about objects that another program has changed."""


@pytest.fixture
def writer() -> ReadModelWriter[State, Hears]:
    """What writes the aggregator's read model, on a connection that is not connected."""
    connection = Connection()
    made = writer_for(
        AGGREGATOR,
        Bus(connection, Publisher(connection), LogId("log")),
        show_deprecated=False,
        on_parked=ignored,
        on_wrong=unreported,
    )
    assert made is not None
    return made


def event_entry(position: int) -> Entry:
    event = QuotaSet(org="acme", zone=ZONE, instance_type=H100, limit=5, granted=0)
    envelope = envelope_of(QuotaSet).model_construct(
        id=f"e{position}", type="QuotaSet", source="quota", data=event
    )
    return Entry(position, NOON, subject_of(event, "quota"), envelope.encode(), {})


def processed(replica: Replica[State, Hears, Never]) -> Proposal[State, Hears]:
    """What the replica proposes after it has read that a quota was set."""
    replica.read(event_entry(replica.read_to + 1))
    proposal = replica.propose()
    assert proposal is not None
    return proposal


def test_an_input_that_changes_an_object_has_it_written(
    writer: ReadModelWriter[State, Hears],
) -> None:
    # given a projector that has written nothing yet
    projector, replica = Projector(writer), Replica(AGGREGATOR)

    # when an input changes a quota
    projector.update(replica.state, processed(replica))

    # then one object is to be written
    assert not writer.suspended
    assert len(writer.unwritten) == 1


def test_a_follower_writes_nothing_until_it_processes_an_input(
    writer: ReadModelWriter[State, Hears],
) -> None:
    # given a replica that writes
    projector, replica = Projector(writer), Replica(AGGREGATOR)
    projector.update(replica.state, processed(replica))

    # when another replica commits
    projector.suspend()

    # then it does not write, and does so again with the next input that it processes
    assert writer.suspended
    projector.update(replica.state, processed(replica))
    assert not writer.suspended


def test_comparing_reads_what_is_stored_before_it_writes(
    writer: ReadModelWriter[State, Hears],
) -> None:
    # given a replica that has caught up
    projector, replica = Projector(writer), Replica(AGGREGATOR)

    # when what is stored is to be compared with its state
    projector.compare(replica)

    # then it may write, but not before it has read what is stored
    assert not writer.suspended
    assert not writer.is_current


def test_a_follower_sweeps_once_the_leader_has_been_silent_for_long(
    writer: ReadModelWriter[State, Hears],
) -> None:
    # given a follower
    projector, replica = Projector(writer), Replica(AGGREGATOR)
    projector.compare(replica)
    projector.suspend()

    # when the leader has been silent for a while
    projector.sweep(replica, SWEEP_AFTER_S)

    # then its objects are left to it
    assert writer.suspended

    # and are compared once it has been silent for longer
    projector.sweep(replica, SWEEP_AFTER_S + 0.1)
    assert not writer.suspended


def test_a_follower_with_open_inputs_does_not_sweep(writer: ReadModelWriter[State, Hears]) -> None:
    # given a follower whose state is not the newest
    projector, replica = Projector(writer), Replica(AGGREGATOR)
    replica.read(event_entry(1))

    # when the leader has been silent for long
    projector.sweep(replica, SWEEP_AFTER_S + 0.1)

    # then the inputs come first
    assert writer.suspended


def test_a_service_without_a_projection_has_nothing_to_write() -> None:
    # given a service that shows nothing in the read model
    connection = Connection()
    writer = writer_for(
        QUOTA,
        Bus(connection, Publisher(connection), LogId("log")),
        show_deprecated=False,
        on_parked=ignored,
        on_wrong=unreported,
    )
    projector, replica = Projector(writer), Replica(QUOTA)

    # when all happens that can happen
    projector.update(replica.state, proposed())
    projector.suspend()
    projector.invalidate()
    projector.compare(replica)
    projector.sweep(replica, SWEEP_AFTER_S + 0.1)

    # then there is nothing to run
    assert writer is None
    assert list(projector.tasks()) == []
