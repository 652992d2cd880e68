from dataclasses import replace
from datetime import timedelta

import pytest

from nodepool.contract.events import CommandAccepted, CommandRefused, Wake
from nodepool.contract.keys import pool_key
from nodepool.contract.outcomes import build_acceptance
from nodepool.engine.folded import Folded
from nodepool.engine.replica import BATCH_MAX, QUIET_MAX
from nodepool.engine.world import START, TICK, Log, World
from support.sample_service import (
    JOB,
    SERVICE,
    Fault,
    Job,
    JobQueued,
    PagePrinted,
    State,
    enqueue,
    page,
    paper,
    print_now,
    store,
)

OTHER = pool_key("acme", "prod", "other")


def names(world: World) -> list[str]:
    """The last tokens of the subjects in the log."""
    return [entry.subject.rpartition(".")[2] for entry in world.log.entries]


# The log.


def test_a_log_stores_messages_in_order_at_moments_that_grow() -> None:
    log = Log()

    positions = [log.append("np.cmd.a.b.c.D", b"") for _ in range(3)]

    assert positions == [1, 2, 3]
    assert [entry.time for entry in log.entries] == [START + n * TICK for n in (1, 2, 3)]


@pytest.mark.parametrize("subject", ["np.cmd.D", "np.evt.a.b.c.D", "np.commit", "other", ""])
def test_a_log_stores_nothing_on_a_subject_that_the_stream_does_not_take(subject: str) -> None:
    log = Log()

    assert log.append(subject, b"") == 0
    assert log.entries == []


def test_a_log_stores_a_message_only_after_the_last_one_that_its_sender_knows() -> None:
    log = Log()
    log.append("np.cmd.a.b.c.D", b"")

    stored = [log.append_after(expected, "np.cmd.a.b.c.E", b"") for expected in (1, 0, 0, 2)]

    assert stored == [None, 2, None, 3]


def test_a_log_refuses_a_commit_after_which_another_one_was_stored() -> None:
    world = World([SERVICE], replicas=2)
    world.send(print_now(1))
    first, second = world.hosts
    for host in (first, second):
        world.read(host)

    assert world.process(first)
    assert not world.process(second)
    assert second.replica.is_behind
    assert names(world) == ["PrintNow", "CommandAccepted", "PagePrinted", "printer"]


def test_a_log_takes_no_commit_that_the_server_would_refuse_for_its_size() -> None:
    world = World([SERVICE])
    world.send(print_now(800))
    world.read(world.hosts[0])
    proposal = world.hosts[0].replica.propose()
    assert proposal is not None
    twice = replace(proposal, processed=proposal.processed * 2)

    with pytest.raises(AssertionError, match="1602 messages do not fit an atomic batch"):
        world.log.commit(twice)
    assert BATCH_MAX == 1_000


def test_a_replica_that_does_not_know_of_the_last_wake_is_woken_the_next_time() -> None:
    world = World([SERVICE])
    world.send(enqueue(1, delay_s=60))
    world.pass_time(timedelta(minutes=2))
    world.send(enqueue(1, delay_s=60))
    world.run_until_idle()
    (host,) = world.hosts
    host.replica.last_wake = 0

    world.pass_time(timedelta(minutes=2))

    assert host.replica.due() is None


# The services.


def test_commands_are_numbered_where_they_have_no_id() -> None:
    world = World([SERVICE])

    assert [world.send(print_now(0)), world.send(print_now(0), "mine")] == ["c1", "mine"]
    assert world.send(print_now(0)) == "c3"


def test_all_that_needs_no_time_happens_until_the_world_is_idle() -> None:
    world = World([SERVICE])
    world.send(enqueue(2))

    world.run_until_idle()

    assert world.messages() == [
        build_acceptance(enqueue(2), "configured"),
        JobQueued(org="acme", cluster="prod", pool="train", pages=2),
        page(0),
        page(1),
    ]
    assert world.state("printer") == world.hosts[0].replica.state


def test_what_is_due_later_happens_when_time_passes_and_not_before() -> None:
    world = World([SERVICE])
    world.send(enqueue(1, OTHER, delay_s=120))
    world.send(enqueue(1, JOB, delay_s=60))

    world.pass_time(timedelta(seconds=59))
    assert world.messages(PagePrinted) == []
    world.pass_time(timedelta(seconds=2))
    assert world.messages(PagePrinted) == [page(0, JOB)]
    world.pass_time(timedelta(hours=1))
    assert world.messages(PagePrinted) == [page(0, JOB), page(1, OTHER)]
    assert world.log.clock >= START + timedelta(hours=1)


def test_two_replicas_make_the_same_log_as_one() -> None:
    logs: list[list[str]] = []
    for replicas in (1, 2):
        world = World([SERVICE], replicas=replicas)
        world.send(enqueue(1_000))
        world.send(print_now(3, fault=Fault.DECIDING))
        world.pass_time(timedelta(minutes=1))
        logs.append([f"{entry.subject} {entry.content!r}" for entry in world.log.entries])

    assert logs[0] == logs[1]


def test_a_world_shows_messages_of_the_classes_asked_for() -> None:
    world = World([SERVICE])
    world.send(enqueue(1))
    world.send(print_now(-1, OTHER))

    world.run_until_idle()

    assert len(world.messages(CommandAccepted)) == 1
    assert len(world.messages(CommandAccepted, CommandRefused)) == 2
    assert len(world.messages(Wake)) == 1
    envelope, *_ = world.envelopes(PagePrinted)
    assert envelope.correlationid == "c1"


def test_a_replay_of_a_world_makes_the_same_bytes() -> None:
    world = World([SERVICE], replicas=2)
    world.send(enqueue(5, fault=Fault.RECONCILING))
    world.send(enqueue(2_000, OTHER))
    world.publish("np.evt.printer.acme.prod.train.PagePrinted", b"garbage")
    world.publish("np.cmd.acme.prod.train.PrintNow", b"garbage")

    assert world.replay_differs() == []
    assert world.log.entries[-1].subject == "np.commit.printer"


def test_a_world_shows_where_a_replay_differs() -> None:
    world = World([SERVICE])
    world.send(enqueue(5))
    world.run_until_idle()
    (host,) = world.hosts
    host.replica.safe = Folded(State(pages=7, jobs=State().jobs.set(JOB, Job())))

    assert world.replay_differs() == ["printer"]


@pytest.mark.parametrize(("bound", "most"), [("STEPS_MAX", 20), ("MESSAGES_MAX", 10_000)])
def test_a_world_that_never_rests_says_so_of_a_service_that_always_has_work(
    bound: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"nodepool.engine.world.{bound}", most)
    world = World([SERVICE])
    world.send(enqueue(10**9))

    with pytest.raises(AssertionError, match="the world is never idle"):
        world.run_until_idle()
    assert len(world.messages(Wake)) > 5


def test_inputs_without_outputs_are_committed_after_a_while() -> None:
    world = World([SERVICE])
    for number in range(QUIET_MAX):
        store(world.log, paper(), f"p{number}")

    world.run_until_idle()

    (host,) = world.hosts
    assert names(world)[-1] == "printer"
    assert (host.replica.open, host.replica.safe.state.sheets) == (0, QUIET_MAX)


def test_a_world_without_a_read_model_has_no_objects() -> None:
    with pytest.raises(AssertionError, match="no service of this world has a read model"):
        World([SERVICE]).objects("nodepools")
