"""What a replica believes of the messages on its service's subjects, whoever has put them there."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodepool.contract.keys import pool_key
from nodepool.contract.log import Entry, LogId
from nodepool.contract.messages import Message, pool_fields
from nodepool.engine.records import Record, follow
from nodepool.engine.replica import Replica
from nodepool.engine.snapshot import dump, load
from nodepool.engine.world import Log
from support.sample_service import (
    JOB,
    SERVICE,
    Fault,
    JobQueued,
    PrinterReplica,
    State,
    commit,
    enqueue,
    fire,
    page,
    pages_added,
    paper,
    print_now,
    read,
    store,
    store_record,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LOG = LogId("this log")
RECORD = "np.commit.printer"
WAKE = "np.evt.clock.printer._._.Wake"


def new_log() -> Log:
    return Log(NOON, id=LOG)


def replica() -> PrinterReplica:
    """A replica that has read nothing yet."""
    return Replica(SERVICE, log=LOG)


def replayed(log: Log) -> PrinterReplica:
    """A replica that has read the whole log and nothing else."""
    fresh = replica()
    read(fresh, log)
    return fresh


def restarted(live: PrinterReplica) -> PrinterReplica:
    """A replica that begins at a snapshot of this one."""
    folded = load(State, dump(live.safe))
    return Replica(SERVICE, folded, live.committed, live.expected_sequence, log=LOG)


def agree(live: PrinterReplica, log: Log) -> bool:
    """Whether a replay of the log leads to what the live replica has folded."""
    again = replayed(log)
    return list(dump(again.safe)) == list(dump(live.safe)) and again.failures == 0


# Events on the subjects of a service that it did not say.


FITTING = page(99)
UNFITTING = JobQueued(**pool_fields(JOB), pages=1, fault=Fault.FOLDING_OUTPUT)


@pytest.mark.parametrize("foreign", [FITTING, UNFITTING], ids=["fitting", "not fitting"])
@pytest.mark.parametrize("given_", [print_now(1), paper()], ids=["a command", "an event"])
def test_a_foreign_event_that_names_an_open_input_is_not_believed_at_replay(
    foreign: Message, given_: Message
) -> None:
    log, live = new_log(), replica()
    store(log, given_)
    store(log, foreign, cause=1)
    store(log, print_now(1))
    commit(live, log)

    assert agree(live, log)


@pytest.mark.parametrize("foreign", [FITTING, UNFITTING], ids=["fitting", "not fitting"])
def test_a_foreign_event_in_the_middle_of_live_work_changes_nothing(foreign: Message) -> None:
    log, live, follower = new_log(), replica(), replica()
    for number in range(3):
        position = store(log, enqueue(2))
        read(live, log)
        store(log, foreign, cause=position)
        commit(live, log)
        store(log, foreign, cause=position)
        read(follower, log)
        fire(live, log)
        store(log, foreign, cause=len(log.entries))
        commit(live, log)
        assert live.state.pages == 2 * (number + 1)

    read(follower, log)

    assert agree(live, log)
    assert follower.safe == live.safe
    assert restarted(live).state == live.state


def test_a_foreign_event_between_what_was_proposed_and_its_commit_changes_nothing() -> None:
    log, live = new_log(), replica()
    store(log, print_now(1))
    read(live, log)
    proposal = live.propose()
    assert proposal is not None
    store(log, FITTING, cause=1)
    position = log.commit(proposal)
    assert position is not None
    live.confirm_proposal(proposal, position)

    assert agree(live, log)
    assert live.state.pages == 1


@pytest.mark.parametrize(
    ("subject", "content"),
    [
        pytest.param("np.evt.printer.acme.prod.train.PagePrinted", b"garbage", id="no JSON"),
        pytest.param("np.evt.printer.acme.prod.train.PagePrinted", b'{"id":"x"}', id="no event"),
        pytest.param("np.evt.printer.acme.prod.train.Later", b"{}", id="an unknown name"),
        pytest.param("np.evt.printer.acme.prod.train.PrintNow", b'{"pages":1}', id="a command"),
    ],
)
def test_garbage_on_the_subjects_of_a_service_is_passed_over(subject: str, content: bytes) -> None:
    log, live = new_log(), replica()
    for _ in range(2):
        log.append(subject, content)
        store(log, print_now(1))
        log.append(subject, content)
        commit(live, log)

    assert agree(live, log)
    assert live.state.pages == 2


@pytest.mark.parametrize("cause", [None, 77, -1, 0])
def test_a_foreign_event_that_names_no_open_input_is_passed_over(cause: int | None) -> None:
    log, live = new_log(), replica()
    store(log, print_now(1))
    store(log, FITTING, cause=cause)
    commit(live, log)

    assert agree(live, log)
    assert live.state.pages == 1


def test_only_as_many_events_are_kept_as_a_batch_can_hold() -> None:
    log, live = new_log(), replica()
    store(log, print_now(1))
    for _ in range(3_000):
        store(log, FITTING, cause=1)
    store(log, print_now(800))
    commit(live, log)

    assert agree(live, log)
    assert live.state.pages == 801


# Commit records that the service did not make.


def fields(**changed: object) -> bytes:
    """A record after the position 4, at which the last one lies; some of its fields are changed."""
    record = Record(position=5, outputs=0, follows=4, log=LOG)
    return json.dumps({**json.loads(record.encode()), **changed}).encode()


FOREIGN = {
    "garbage": b"garbage",
    "no object": b"[5]",
    "nested too deep": b"[" * 100_000,
    "no number": b'{"position": 1e999}',
    "too long a number": b'{"position": ' + b"9" * 10_000 + b"}",
    "the form of early versions": b'{"position": 5}',
    "another log": fields(log="that log"),
    "a log that is no text": fields(log=None),
    "another record before it": fields(follows=3),
    "none before it": fields(follows=0),
    "a number that is none": fields(follows=True),
    "a position far ahead": fields(position=99),
    "a position that is its own": fields(position=6),
    "a position that was committed long ago": fields(position=0),
    "more outputs than lie between": fields(outputs=3),
    "fewer than none": fields(outputs=-1),
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_a_record_that_is_not_the_services_own_commits_nothing(content: bytes) -> None:
    log, live, follower = new_log(), replica(), replica()
    store(log, print_now(1))
    commit(live, log)
    store(log, print_now(2))
    log.append(RECORD, content)

    read(live, log)
    read(follower, log)

    assert [(each.committed, each.open) for each in (live, follower)] == [(1, 1), (1, 1)]
    assert live.expected_sequence == 6
    assert commit(live, log)
    assert live.state.pages == 3
    assert agree(live, log)


@pytest.mark.parametrize(
    "content", [b"garbage", b"[]", b'{"position": true}', b'{"position": 99}', b'{"position": -1}']
)
def test_before_the_first_record_of_a_service_one_without_a_right_position_commits_nothing(
    content: bytes,
) -> None:
    log, live = new_log(), replica()
    store(log, print_now(1))
    position = log.append(RECORD, content)

    read(live, log)

    assert (live.committed, live.expected_sequence, live.open) == (0, position, 1)
    assert commit(live, log)
    assert agree(live, log)


def test_a_foreign_record_is_not_taken_for_that_of_another_replica() -> None:
    log, live = new_log(), replica()
    store(log, print_now(1))
    commit(live, log)
    log.append(RECORD, b'{"position": 1}')

    assert not live.read(log.entries[-1])


def test_records_of_early_versions_are_believed_until_one_says_what_it_follows() -> None:
    log = new_log()
    store(log, print_now(1))
    store(log, page(7), cause=1)
    log.append(RECORD, b'{"position": 1}')
    live = replayed(log)
    believed = (live.committed, live.state.pages, live.is_chained)
    store(log, print_now(1))
    commit(live, log)
    store(log, print_now(1))
    log.append(RECORD, b'{"position": 8}')

    read(live, log)

    assert believed == (1, 1, False)
    assert (live.committed, live.open, live.is_chained) == (4, 1, True)
    assert agree(live, log)


def test_a_replica_at_a_snapshot_believes_no_record_of_early_versions() -> None:
    log, live = new_log(), replica()
    store(log, print_now(1))
    commit(live, log)
    live = restarted(live)
    store(log, print_now(1))
    log.append(RECORD, b'{"position": 5}')

    for entry in log.entries:
        live.read(entry)

    assert (live.committed, live.open) == (1, 1)


def test_a_record_names_what_it_follows_and_how_many_messages_of_its_batch() -> None:
    log, live = new_log(), replica()
    store(log, print_now(2))
    store(log, paper(fault=Fault.DECIDING))
    commit(live, log)
    store(log, print_now(0))
    commit(live, log)

    records = [json.loads(entry.content) for entry in log.entries if entry.subject == RECORD]
    assert records == [
        {"position": 2, "outputs": 5, "follows": 0, "log": LOG},
        {"position": 9, "outputs": 1, "follows": 8, "log": LOG},
    ]


# Whatever lies on its subjects, a service does each thing once, and a replay equals it.


foreigners = st.sampled_from([*FOREIGN.values(), b'{"position": 1}'])
INPUTS = (
    print_now(2, pool_key("acme", "prod", "now")),
    enqueue(2, pool_key("acme", "prod", "soon")),
    pages_added(2, pool_key("acme", "prod", "more")),
)
acts = st.lists(
    st.one_of(
        st.tuples(st.just("record"), foreigners),
        st.tuples(st.just("event"), st.sampled_from([FITTING, UNFITTING])),
        st.tuples(st.just("wake"), st.binary(max_size=3)),
        st.tuples(st.just("input"), st.sampled_from(INPUTS)),
        st.tuples(st.sampled_from(["commit", "snapshot"]), st.none()),
    ),
    max_size=30,
)


def append_foreign(log: Log, record: bytes) -> None:
    """Store a foreign record, unless it is the very record that would come next."""
    if f'"follows": {log.last[RECORD]},'.encode() not in record:
        log.append(RECORD, record)


@settings(max_examples=100, deadline=None)
@given(acts, st.data())
def test_foreign_messages_change_nothing_of_what_is_done(
    story: list[tuple[str, object]], data: st.DataObject
) -> None:
    # Records of early versions are followed until the first that names the one before it.
    log, live, wanted = new_log(), replica(), 1
    store(log, print_now(1))
    commit(live, log)
    for what, content in story:
        match what, content:
            case "record", bytes(record):
                append_foreign(log, record)
            case "event", Message() as event:
                store(log, event, cause=data.draw(st.integers(0, len(log.entries) + 3)))
            case "wake", bytes(noise):
                log.append(WAKE, noise)
            case "input", Message() as message:
                store(log, message)
                wanted += 2
            case "snapshot", _ if live.is_chained:
                live = restarted(live)
            case "commit", _:
                commit(live, log)
    for _ in range(40):
        if not commit(live, log) and live.due() is not None:
            live.last_wake = log.last.get(WAKE, 0)
            fire(live, log)

    assert live.state.pages == wanted
    assert agree(live, log)


# An operator steps over an input.


def test_an_input_that_a_record_names_as_skipped_is_passed_over_live_and_at_replay() -> None:
    log, live = new_log(), replica()
    store(log, print_now(1))
    commit(live, log)
    position = store(log, print_now(5))
    read(live, log)
    live.propose()
    log.append("np.dead.printer", b"{}")
    store_record(log, position, outputs=1, skipped=True)
    store(log, print_now(1))

    commit(live, log)

    assert (live.committed, live.state.pages) == (len(log.entries) - 3, 2)
    assert agree(live, log)


def test_what_is_committed_together_with_a_skipped_input_is_folded() -> None:
    log, live = new_log(), replica()
    store(log, paper())
    skipped = store(log, paper())
    store_record(log, skipped, skipped=True)

    read(live, log)

    assert live.state.sheets == 1
    assert agree(live, log)


# The functions themselves.


def entry(content: bytes) -> Entry:
    return Entry(6, NOON, RECORD, content, {})


@given(st.binary() | st.from_type(dict[str, int]).map(lambda each: json.dumps(each).encode()))
def test_no_content_of_a_record_raises(content: bytes) -> None:
    followed = follow(entry(content), LOG, committed=1, before=4, is_chained=True)

    assert followed is None


def test_a_record_is_read_as_it_was_made() -> None:
    record = Record(position=3, outputs=1, follows=4, log=LOG, skipped=True)

    followed = follow(entry(record.encode()), LOG, committed=1, before=4, is_chained=True)

    assert followed == (3, 5, True, True)
