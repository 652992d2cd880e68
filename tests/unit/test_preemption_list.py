"""The list of preemptions, put together from messages of the log."""

from datetime import UTC, datetime, timedelta

import pytest

from contracts.samples import sample
from nodepool.cli.names import PREEMPTION
from nodepool.cli.preemption_table import after, lateness, preemption_document
from nodepool.cli.tables import COLUMNS
from nodepool.client.preemptions import PREEMPTIONS_MAX, Preemption, Preemptions
from nodepool.contract.documents import text
from nodepool.contract.events import (
    CWDrainNode,
    CWNodeDeleted,
    CWNodeRegistrationFailed,
    NodePreempted,
    NodePreemptionRequested,
    NodePreemptionWithdrawn,
    PreemptionPending,
)
from nodepool.contract.log import Entry
from nodepool.contract.messages import Envelope, Event
from nodepool.contract.subjects import subject_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """A moment so many seconds after noon."""
    return NOON + timedelta(seconds=seconds)


class Reading:
    """A log that is read while it grows."""

    def __init__(self) -> None:
        self.found = Preemptions()
        self.position = 0

    def read(self, event: Event, seconds: float) -> None:
        """A message that was stored at a moment."""
        self.position += 1
        subject = subject_of(event, event.speaker)
        envelope = Envelope(
            id=str(self.position), type=type(event).__name__, source="x", data=event
        )
        entry = Entry(self.position, at(seconds), subject, envelope.encode(), {})
        self.found.read([entry])

    def all(self) -> list[Preemption]:
        """The preemptions."""
        return self.found.all()


def test_the_stages_of_a_preemption_are_put_together() -> None:
    reading = Reading()

    reading.read(sample(NodePreemptionRequested, cause="Reclaimed", beneficiary=""), 0)
    reading.read(sample(PreemptionPending, since=at(0)), 0.01)
    reading.read(sample(CWDrainNode), 120.05)
    reading.read(sample(CWNodeDeleted, lost=2), 420.5)

    (found,) = reading.all()
    assert (found.cause, found.position, found.began) == ("Reclaimed", 2, at(0))
    assert (found.drain_late, found.end_late, found.lost) == (
        timedelta(seconds=0.05),
        timedelta(seconds=0.5),
        2,
    )


def test_a_node_that_left_early_was_not_late() -> None:
    reading = Reading()

    reading.read(sample(PreemptionPending, since=at(0)), 0)
    reading.read(sample(CWDrainNode), 60)
    reading.read(sample(CWDrainNode), 121)
    reading.read(sample(CWNodeDeleted), 90)

    (found,) = reading.all()
    assert (found.cause, found.drain_late, found.end_late) == ("Requested", None, None)


def test_a_preemption_ends_when_the_registration_of_its_node_fails() -> None:
    # given a Node that is preempted while it boots
    reading = Reading()

    # when its machine was turned away before lifecycle heard of the preemption
    reading.read(sample(NodePreempted), 0)
    reading.read(sample(CWNodeRegistrationFailed), 1)

    # then the preemption is over
    (found,) = reading.all()
    assert (found.gone, found.lost) == (at(1), 0)
    assert text(preemption_document(found), "status", "phase") == "Deleted"


@pytest.mark.parametrize("end", [CWNodeDeleted, CWNodeRegistrationFailed])
def test_a_preemption_is_over_if_its_node_left_just_before_it_began(end: type[Event]) -> None:
    # given a Node that leaves for another reason while its preemption is decided
    reading = Reading()

    # when its end comes first in the log
    reading.read(sample(NodePreemptionRequested, cause="Reclaimed", beneficiary=""), 0)
    reading.read(sample(end), 1)
    reading.read(sample(PreemptionPending, since=at(2)), 2)

    # then the preemption has ended
    (found,) = reading.all()
    assert (found.cause, found.gone, found.end_late) == ("Reclaimed", at(1), None)
    assert text(preemption_document(found), "status", "phase") == "Deleted"


def test_a_preemption_is_over_if_its_node_left_just_before_its_timetable_began() -> None:
    reading = Reading()

    reading.read(sample(NodePreempted), 0)
    reading.read(sample(CWNodeDeleted), 1)
    reading.read(sample(PreemptionPending, since=at(2)), 2)

    (found,) = reading.all()
    assert (found.has_timetable, found.gone) == (True, at(1))


def test_a_node_without_a_timetable_is_never_late() -> None:
    reading = Reading()

    reading.read(sample(NodePreempted), 0)
    reading.read(sample(CWNodeDeleted), 500)

    (found,) = reading.all()
    assert (found.has_timetable, found.gone, found.end_late) == (False, at(500), None)


def test_a_node_that_was_kept_in_between_is_listed_once() -> None:
    reading = Reading()

    reading.read(sample(NodePreemptionRequested, cause="DefaultPoolShort"), 0)
    reading.read(sample(NodePreempted), 0)
    reading.read(sample(PreemptionPending, since=at(1)), 1)

    (found,) = reading.all()
    assert (found.has_timetable, found.cause) == (True, "DefaultPoolShort")


def test_a_request_that_was_taken_back_causes_no_later_preemption() -> None:
    reading = Reading()

    reading.read(sample(NodePreemptionRequested, cause="DefaultPoolShort"), 0)
    reading.read(sample(NodePreemptionWithdrawn), 1)
    reading.read(sample(PreemptionPending, since=at(500)), 500)

    (found,) = reading.all()
    assert (found.cause, found.beneficiary) == ("Requested", "")


def test_each_stay_of_a_machine_has_its_own() -> None:
    reading = Reading()

    reading.read(sample(PreemptionPending, since=at(0)), 0)
    reading.read(sample(PreemptionPending, since=at(500), assignment=8), 500)
    reading.read(sample(CWNodeDeleted, assignment=8), 600)
    reading.read(sample(CWNodeDeleted, assignment=9), 700)

    assert [each.gone for each in reading.all()] == [None, at(600)]


def test_of_too_many_the_newest_are_kept() -> None:
    reading = Reading()

    for number in range(PREEMPTIONS_MAX + 2):
        reading.read(sample(PreemptionPending, since=at(number), assignment=number), number)

    found = reading.all()
    assert (len(found), found[0].began) == (PREEMPTIONS_MAX, at(2))


def test_what_cannot_be_read_is_passed_over() -> None:
    found = Preemptions()

    found.read([Entry(1, NOON, "np.evt.preemption.a.b.c.PreemptionPending", b"{", {})])

    assert found.all() == []


def test_a_preemption_is_shown_with_its_times_and_its_lateness() -> None:
    preemption = Preemption(
        "g1",
        "cheap",
        255,
        at(0),
        cause="DefaultPoolShort",
        beneficiary="acme/prod/train",
        drained=at(120.04),
        gone=at(420.006),
        lost=1,
    )

    document = preemption_document(preemption)

    assert document == {
        "kind": "Preemption",
        "metadata": {"name": "g1.ff", "creationTimestamp": "2026-01-01T12:00:00.000Z"},
        "spec": {
            "node": "g1",
            "nodePool": "cheap",
            "cause": "DefaultPoolShort",
            "beneficiary": "acme/prod/train",
        },
        "status": {
            "phase": "Deleted",
            "pending": "2026-01-01T12:00:00.000Z",
            "inProgress": "2026-01-01T12:02:00.040Z",
            "deleted": "2026-01-01T12:07:00.006Z",
            "lostPods": 1,
            "latenessSeconds": {"drain": 0.04, "end": 0.006},
        },
    }
    assert (after(document, "inProgress"), after(document, "deleted")) == ("2m", "7m")
    assert lateness(document) == "0.04s"
    # The NodePool may not need the Node any more.
    cells = {column.title: column.cell(document) for column in COLUMNS[PREEMPTION]}
    assert cells["REQUESTED FOR"] == "acme/prod/train"


def test_what_has_not_come_yet_is_left_out() -> None:
    document = preemption_document(Preemption("g1", "cheap", 255, at(0)))

    assert document["status"] == {
        "phase": "Pending",
        "pending": "2026-01-01T12:00:00.000Z",
        "latenessSeconds": {},
    }
    assert (after(document, "inProgress"), lateness(document), after({}, "deleted")) == ("", "", "")
