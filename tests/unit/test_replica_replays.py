import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodepool.contract.events import CommandAccepted, CommandRefused, Wake
from nodepool.contract.keys import pool_key
from nodepool.contract.messages import Message
from nodepool.engine.bounds import OUTPUTS_MAX
from nodepool.engine.replica import Replica
from nodepool.engine.snapshot import dump, load
from nodepool.engine.world import Log, World
from support.sample_service import (
    JOB,
    NAME,
    SERVICE,
    Fault,
    PagePrinted,
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
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
RECORD = "np.commit.printer"


def given_log(*messages: Message) -> Log:
    """A log that holds these messages and nothing that the service said."""
    log = Log(NOON)
    for message in messages:
        store(log, message)
    return log


def replica_of(log: Log) -> PrinterReplica:
    """A replica that has read the whole log."""
    replica = PrinterReplica(SERVICE)
    read(replica, log)
    return replica


def restarted(replica: PrinterReplica) -> PrinterReplica:
    """A replica that begins at a snapshot of this one."""
    folded = load(State, dump(replica.safe))
    return Replica(SERVICE, folded, replica.committed, replica.expected_sequence)


def snapshot(replica: PrinterReplica) -> list[bytes]:
    """What a replica has committed, as bytes."""
    return list(dump(replica.safe))


# Recorded outputs win.


def test_what_the_log_holds_is_folded_and_not_what_would_be_said_today() -> None:
    log = given_log(print_now(1))
    store(log, page(41), cause=1)
    store(log, page(42), cause=1)
    log.append(RECORD, b'{"position": 1}')

    replica = replica_of(log)

    assert replica.state.pages == 2
    assert (replica.committed, replica.expected_sequence) == (1, 4)
    assert replica.propose() is None


def test_outputs_are_folded_right_after_their_input_however_late_they_lie_in_the_log() -> None:
    log, live = given_log(enqueue(1, fault=Fault.FOLDING_PAGE)), PrinterReplica(SERVICE)
    read(live, log)
    proposal = live.propose()
    assert proposal is not None
    store(log, paper())
    store(log, pages_added(2))
    position = log.commit(proposal)
    assert position is not None
    live.confirm_proposal(proposal, position)
    commit(live, log)

    again = replica_of(log)

    assert again.safe == live.safe
    assert (again.state.sheets, again.state.jams) == (1, 1)


def test_a_committed_input_without_recorded_outputs_is_folded_and_not_decided_on() -> None:
    log = given_log(paper(), print_now(1))
    log.append(RECORD, b'{"position": 2}')

    replica = replica_of(log)

    assert replica.state == State(sheets=1)
    assert replica.propose() is None


def test_what_comes_after_the_last_commit_is_open() -> None:
    log = given_log(print_now(1))
    log.append(RECORD, b'{"position": 1}')
    store(log, print_now(1))

    proposal = replica_of(log).propose()

    assert proposal is not None
    assert [message.id for message in proposal.messages] == ["3.printer.0", "3.printer.1"]


def test_a_second_replica_follows_what_the_first_says() -> None:
    log, first, second = Log(NOON), PrinterReplica(SERVICE), PrinterReplica(SERVICE)
    for count in (1, 0, 3):
        store(log, print_now(count))
        store(log, paper())
        commit(first, log)
        read(second, log)

    assert second.safe == first.safe
    assert (second.committed, second.expected_sequence) == (
        first.committed,
        first.expected_sequence,
    )
    assert second.open == first.open


def test_reading_says_which_entry_is_a_commit_of_another_replica() -> None:
    log, first, second = given_log(print_now(0)), PrinterReplica(SERVICE), PrinterReplica(SERVICE)
    commit(first, log)

    assert [second.read(entry) for entry in log.entries] == [False, False, True]
    assert [first.read(entry) for entry in log.entries[1:]] == [False, False]


def test_a_replica_restored_from_a_snapshot_reads_on_from_there() -> None:
    log, live = given_log(print_now(2)), PrinterReplica(SERVICE)
    commit(live, log)
    restored = restarted(live)
    store(log, paper())
    store(log, print_now(1))
    commit(live, log)

    for entry in log.entries:
        restored.read(entry)

    assert (restored.safe, restored.committed, restored.expected_sequence) == (
        live.safe,
        live.committed,
        live.expected_sequence,
    )


@pytest.mark.parametrize("fault", [fault for fault in Fault if fault])
def test_a_service_that_breaks_leaves_the_same_state_at_replay(fault: Fault) -> None:
    log, live = Log(NOON), PrinterReplica(SERVICE)
    for message in (
        print_now(1),
        print_now(1, fault=fault),
        enqueue(3, fault=fault),
        paper(fault=fault),
        pages_added(2, fault=fault),
        print_now(1),
    ):
        store(log, message)
        commit(live, log)
    store(log, Wake(service=NAME, due=NOON))
    commit(live, log)

    again = replica_of(log)

    assert again.committed == live.committed
    assert snapshot(again) == snapshot(live)
    assert again.failures == 0


# Whatever happens, each input is processed once, and all replicas agree.


@dataclass(frozen=True)
class Act:
    """One thing that happens to one of the replicas."""

    replica: int
    what: str


PLAIN = ("print", "paper", "break", "read", "commit", "lose", "doubt", "restart", "snapshot")
acts = st.lists(st.builds(Act, st.integers(0, 2), st.sampled_from(PLAIN)), max_size=60)


def happens(act: Act, log: Log, replicas: list[PrinterReplica]) -> None:
    """Lets one thing happen."""
    replica = replicas[act.replica]
    match act.what:
        case "print":
            store(log, print_now(2))
        case "paper":
            store(log, paper())
        case "break":
            store(log, print_now(2, fault=Fault.DECIDING))
        case "read":
            read(replica, log)
        case "restart":
            replicas[act.replica] = PrinterReplica(SERVICE)
        case "snapshot":
            replicas[act.replica] = restarted(replica)
        case _:
            proposal = replica.propose(even_if_quiet=act.what == "doubt")
            if proposal is None or not proposal.worth_storing:
                return
            position = log.commit(proposal) if act.what != "lose" else None
            if act.what != "commit":
                replica.undo_proposal()
            elif position is None:
                replica.note_conflict()
            else:
                replica.confirm_proposal(proposal, position)


@given(acts)
def test_replicas_that_lose_doubt_and_restart_process_each_input_once(story: list[Act]) -> None:
    log, replicas = Log(NOON), [PrinterReplica(SERVICE) for _ in range(3)]

    for act in story:
        happens(act, log, replicas)
    for _ in range(2):
        for replica in replicas:
            commit(replica, log)
    for replica in replicas:
        read(replica, log)

    inputs = [entry for entry in log.entries if entry.subject.startswith("np.cmd.")]
    healthy = [entry for entry in inputs if b"deciding" not in entry.content]
    printed = [entry for entry in log.entries if entry.subject.endswith(".PagePrinted")]
    numbers = [json.loads(entry.content)["data"]["number"] for entry in printed]
    outcomes = [entry for entry in log.entries if ".Command" in entry.subject]
    assert numbers == list(range(2 * len(healthy)))
    assert len(outcomes) == len(inputs)
    assert len({tuple(snapshot(replica)) for replica in replicas}) == 1


# Replay equals live at every commit, through wakes, restarts and changes of the leader.


JOBS = [pool_key("acme", "prod", name) for name in ("a", "b", "c")]
jobs = st.sampled_from(JOBS)
counts = st.integers(0, 3) | st.sampled_from([899, 900, 901, 1_900])
messages = st.one_of(
    st.builds(enqueue, counts, jobs),
    st.builds(lambda count, job: enqueue(count, job, delay_s=2), counts, jobs),
    st.builds(pages_added, counts, jobs),
    st.builds(lambda fault: paper(fault=fault), st.sampled_from(Fault)),
    st.builds(
        lambda job, fault: enqueue(2, job, fault=fault),
        st.just(pool_key("acme", "prod", "broken")),
        st.sampled_from(Fault),
    ),
)


@settings(max_examples=30, deadline=None)
@given(st.lists(messages, max_size=6), st.lists(st.integers(0, 3), max_size=40))
def test_a_replay_equals_the_live_replica_at_every_commit_however_the_leaders_change(
    said: list[Message], turns: list[int]
) -> None:
    log, follower = Log(NOON), PrinterReplica(SERVICE)
    leaders = [PrinterReplica(SERVICE), PrinterReplica(SERVICE)]
    for message in said:
        store(log, message, f"c{len(log.entries) + 1}")

    for turn in (*turns, *[0] * 30):
        leader = leaders[turn % 2]
        if commit(leader, log):
            read(follower, log)
            assert snapshot(follower) == snapshot(leader)
            follower = restarted(follower)
        elif leader.due() is not None:
            fire(leader, log)
        if turn >= 2:
            leaders[turn % 2] = restarted(leader)
            log.clock += timedelta(seconds=1)
    for leader in leaders:
        read(leader, log)

    assert snapshot(leaders[0]) == snapshot(leaders[1]) == snapshot(replica_of(log))
    assert replica_of(log).failures == 0


@settings(max_examples=20, deadline=None)
@given(st.lists(messages, max_size=6))
def test_everything_is_said_once_and_in_commits_that_the_server_takes(said: list[Message]) -> None:
    world = World([SERVICE], replicas=2)
    for number, message in enumerate(said):
        store(world.log, message, f"c{number}")

    world.pass_time(timedelta(seconds=10))

    wanted = dict.fromkeys(JOBS, 0)
    for message in said:
        key, count = getattr(message, "key", JOB), getattr(message, "pages", 0)
        wanted[key] = wanted.get(key, 0) + count
    pages = [event for event in world.messages(PagePrinted) if isinstance(event, PagePrinted)]
    assert [event.number for event in pages] == list(range(len(pages)))
    assert {job: sum(event.key == job for event in pages) for job in JOBS} == {
        job: wanted[job] for job in JOBS
    }
    assert world.replay_differs() == []


def test_the_longest_work_needs_as_many_commits_as_its_size_says() -> None:
    world = World([SERVICE])
    world.send(enqueue(10 * OUTPUTS_MAX))

    world.run_until_idle()

    records = [entry for entry in world.log.entries if entry.subject == RECORD]
    assert len(world.messages(PagePrinted)) == 10 * OUTPUTS_MAX
    assert len(world.messages(CommandAccepted, CommandRefused)) == 1
    assert len(records) == 1 + 10
    assert world.replay_differs() == []
