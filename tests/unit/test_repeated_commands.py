from dataclasses import replace
from datetime import UTC, datetime
from typing import Never

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodepool.contract.events import CommandAccepted, CommandRefused
from nodepool.contract.keys import pool_key
from nodepool.contract.outcomes import CommandOutcome, build_acceptance, build_refusal
from nodepool.engine.folded import Folded
from nodepool.engine.replica import Replica
from nodepool.engine.snapshot import dump, load
from nodepool.engine.step import step
from nodepool.engine.world import Log, World
from nodepool.service import Context
from support.sample_service import (
    SERVICE,
    Enqueue,
    Fault,
    PagePrinted,
    PrinterReplica,
    PrintNow,
    State,
    commit,
    enqueue,
    print_now,
    read,
    store,
    store_record,
)

NOON = Context(7, datetime(2026, 1, 1, 12, tzinfo=UTC), "c1")
OF_ANOTHER_ORG = pool_key("evil", "prod", "train")
QUEUED = pool_key("acme", "prod", "queued")


def outcomes(log: Log) -> list[CommandOutcome]:
    """Every outcome in a log, in its order."""
    world = World([SERVICE])
    world.log = log
    return [
        outcome
        for outcome in world.messages(CommandAccepted, CommandRefused)
        if isinstance(outcome, CommandAccepted | CommandRefused)
    ]


def unusable(*_anything: object) -> Never:
    """A function that must not be called."""
    raise SystemExit("this was to be neither folded nor decided on")


UNUSABLE = replace(SERVICE, evolve=unusable, decide=unusable, on_failure=unusable)


def processed(command: PrintNow | Enqueue, before: Folded[State], id: str = "c1") -> Folded[State]:
    """What is folded once a command was processed."""
    return step(SERVICE, before, command, NOON._replace(id=id)).folded


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(print_now(3), id="accepted"),
        pytest.param(print_now(-1), id="refused"),
        pytest.param(enqueue(3), id="accepted, with work under way"),
    ],
)
def test_a_command_sent_again_has_the_outcome_that_it_had_and_nothing_else(
    command: PrintNow | Enqueue,
) -> None:
    first = step(SERVICE, Folded(State()), command, NOON)

    again = step(UNUSABLE, first.folded, command, NOON._replace(position=9))

    assert again.outputs == first.outputs[:1]
    assert again.folded is first.folded
    assert again.failure is None


def test_a_command_with_other_content_and_an_id_that_was_used_has_the_recorded_outcome() -> None:
    folded = processed(print_now(3), Folded(State()))

    again = step(SERVICE, folded, print_now(500), NOON)

    assert again.outputs == (build_acceptance(print_now(3), "done"),)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(print_now(2, OF_ANOTHER_ORG), id="of another organisation"),
        pytest.param(print_now(2, pool_key("acme", "prod", "serve")), id="of another NodePool"),
        pytest.param(enqueue(2), id="of another name"),
    ],
)
def test_another_command_with_the_same_id_is_processed(other: PrintNow | Enqueue) -> None:
    folded = processed(print_now(3), Folded(State()))

    result = step(SERVICE, folded, other, NOON)

    assert len(result.outputs) > 1
    assert result.folded != folded


def test_a_command_that_was_a_dry_run_is_processed_when_it_is_sent_again() -> None:
    folded = processed(print_now(3, dry_run=True), Folded(State()))

    result = step(SERVICE, folded, print_now(3), NOON)

    assert folded == Folded(State())
    assert len(result.outputs) == 1 + 3


def test_a_command_that_was_refused_for_an_internal_error_is_processed_when_sent_again() -> None:
    folded = processed(print_now(3, fault=Fault.DECIDING), Folded(State()))

    result = step(SERVICE, folded, print_now(3), NOON)

    assert folded == Folded(State())
    assert len(result.outputs) == 1 + 3


def test_a_command_is_found_to_be_repeated_within_one_commit() -> None:
    log, replica = Log(), PrinterReplica(SERVICE)
    for position in range(3):
        log.append(
            "np.cmd.acme.prod.train.PrintNow",
            b'{"specversion": "1.0", "id": "c1", "data": {"pages": 2}}',
            {"Nats-Msg-Id": f"not the id of the command, but that of storing it: {position}"},
        )

    commit(replica, log)

    assert outcomes(log) == [build_acceptance(print_now(2), "done")] * 3
    assert replica.state.pages == 2


@pytest.mark.parametrize("from_a_snapshot", [False, True])
def test_a_command_is_found_to_be_repeated_after_a_restart(from_a_snapshot: bool) -> None:
    log, replica = Log(), PrinterReplica(SERVICE)
    store(log, print_now(2), "c1")
    commit(replica, log)

    restarted = PrinterReplica(SERVICE)
    if from_a_snapshot:
        folded = load(State, dump(replica.safe))
        restarted = Replica(SERVICE, folded, replica.committed, replica.expected_sequence)
    store(log, print_now(2), "c1")
    commit(restarted, log)
    read(replica, log)

    assert outcomes(log) == [build_acceptance(print_now(2), "done")] * 2
    assert restarted.state.pages == 2
    assert list(dump(replica.safe)) == list(dump(restarted.safe))


@pytest.mark.parametrize(
    "outcome",
    [build_acceptance(print_now(2), "done"), build_refusal(print_now(2), "pages", "too few")],
)
def test_a_replay_passes_over_what_was_recorded_for_a_repeated_command(
    outcome: CommandOutcome,
) -> None:
    log, live, again = Log(), PrinterReplica(SERVICE), PrinterReplica(SERVICE)
    store(log, print_now(2), "c1")
    commit(live, log)
    position = store(log, print_now(2), "c1")
    store(log, outcome, "an outcome", cause=position)
    store(log, PagePrinted(org="acme", cluster="prod", pool="train", number=9), "x", cause=position)
    store_record(log, position, outputs=2)

    read(live, log)
    read(again, log)

    assert live.committed == again.committed == position
    assert live.safe == again.safe
    assert live.state.pages == 2


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["c1", "c2", "c3"]),
            st.sampled_from(
                [
                    print_now(1),
                    print_now(2, OF_ANOTHER_ORG),
                    print_now(-1),
                    print_now(1, dry_run=True),
                    print_now(1, fault=Fault.DECIDING),
                    enqueue(2, QUEUED),
                ]
            ),
        ),
        max_size=12,
    )
)
def test_every_command_has_one_outcome_and_its_effect_once_however_often_it_is_sent(
    sent: list[tuple[str, PrintNow | Enqueue]],
) -> None:
    world = World([SERVICE], replicas=2)

    for id, command in sent:
        world.send(command, id)
        world.run_until_idle()

    effects: dict[tuple[object, ...], int] = {}
    for id, command in sent:
        is_dry_run = isinstance(command, PrintNow) and command.dry_run
        if not is_dry_run and command.fault is Fault.NONE:
            effects.setdefault((id, type(command), command.path), max(0, command.pages))
    assert len(world.messages(CommandAccepted, CommandRefused)) == len(sent)
    pages = world.messages(PagePrinted)
    assert [getattr(page, "number", -1) for page in pages] == list(range(sum(effects.values())))
    assert world.replay_differs() == []
