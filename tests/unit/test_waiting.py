"""A bound on what one organisation may have waiting, counted from the log alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodepool.contract.events import CommandRefused
from nodepool.engine.waiting import TOO_MANY, WAITING_MAX, WEIGHT_BYTES, Waiting
from support.world_harness import WorldHarness
from validator.decide import SERVICE as VALIDATOR

EVIL, OTHER = "evil", "acme"
FLOOD = WAITING_MAX + 50


def command(org: str) -> str:
    """The subject of a command of an organisation."""
    return f"np.cmd.{org}.prod.train.ScaleNodePool"


@pytest.fixture
def world() -> WorldHarness:
    """The validator, and a cluster of each organisation."""
    harness = WorldHarness(VALIDATOR)
    for org in (EVIL, OTHER):
        harness.given_cluster(org=org)
    return harness


def flood(world: WorldHarness) -> list[str]:
    """So many commands of one organisation, and one of another behind them, sent together."""
    with world.sent_together():
        ids = [
            world.send("DeleteNodePool", (EVIL, "prod", f"p{number}"), {})
            for number in range(FLOOD)
        ]
        ids.append(world.send("DeleteNodePool", (OTHER, "prod", "p"), {}))
    return ids


def test_commands_beyond_the_bound_are_refused_and_those_of_others_are_not(
    world: WorldHarness,
) -> None:
    ids = flood(world)

    *flooding, other = [world.outcomes(id) for id in ids]
    assert [TOO_MANY in outcome for (outcome,) in flooding] == [
        number >= WAITING_MAX for number in range(FLOOD)
    ]
    assert TOO_MANY not in other[0]
    assert world.replay_differs() == []


def test_a_refusal_says_what_is_too_much_and_when_to_try_again(world: WorldHarness) -> None:
    last = flood(world)[-2]

    (refusal,) = [
        envelope.data
        for envelope in world.envelopes()
        if envelope.correlationid == last and isinstance(envelope.data, CommandRefused)
    ]
    assert refusal == CommandRefused(
        org=EVIL,
        cluster="prod",
        pool=f"p{FLOOD - 1}",
        command="DeleteNodePool",
        reason=TOO_MANY,
        field="",
        message=f"as many commands of {EVIL} as may wait are waiting already ({WAITING_MAX}, or"
        " fewer large ones): send it again in some seconds",
    )


def test_a_command_that_was_one_too_many_is_processed_when_it_is_sent_again(
    world: WorldHarness,
) -> None:
    refused = flood(world)[-2]

    world.resend(refused)

    first, second = world.outcomes(refused)
    assert TOO_MANY in first
    assert TOO_MANY not in second
    assert world.replay_differs() == []


def test_content_that_cannot_be_read_is_refused_as_one_too_many_as_well(
    world: WorldHarness,
) -> None:
    with world.sent_together():
        for number in range(WAITING_MAX):
            world.send("DeleteNodePool", (EVIL, "prod", f"p{number}"), {})
        world.put(command(EVIL), b"\xff{", "bad")

    last = [entry for entry in world.entries() if entry.subject.endswith("CommandRefused")][-1]
    assert TOO_MANY.encode() in last.content
    assert not [entry for entry in world.entries() if entry.subject.startswith("np.dead.")]
    assert world.replay_differs() == []


orgs = st.sampled_from(["a", "b"])
steps = st.lists(st.one_of(orgs, st.integers(0, 30)), max_size=60)


@given(steps, st.integers(1, 5))
def test_no_organisation_is_counted_for_another_or_for_what_is_committed(
    log: list[str | int], most: int
) -> None:
    """Commands by organisation, and commit records that name a position at or before their own."""
    waiting, committed = Waiting(most), 0
    commands: list[tuple[int, str]] = []

    for position, step in enumerate(log, 1):
        if isinstance(step, int):
            committed = max(committed, min(step, position - 1))
            waiting.release_commands(committed)
            continue
        before = [org for place, org in commands if place > committed and org == step]
        assert waiting.is_excess(position, command(step), 0) is (len(before) >= most)
        commands.append((position, step))


def test_a_commit_of_its_own_counts_once_its_record_is_read() -> None:
    waiting = Waiting(1)
    assert [waiting.is_excess(1, command(OTHER), 0), waiting.is_excess(2, command(OTHER), 0)] == [
        False,
        True,
    ]

    waiting.note_commit(record=5, committed=2)
    assert waiting.is_excess(4, command(OTHER), 0)
    waiting.record_read(5)
    assert waiting.is_excess(6, command(OTHER), 0)
    waiting.release_commands(4)
    waiting.release_commands(6)
    assert not waiting.is_excess(7, command(OTHER), 0)


def test_a_large_command_counts_as_several() -> None:
    waiting = Waiting(10)

    assert not waiting.is_excess(1, command(OTHER), 8 * WEIGHT_BYTES)
    assert not waiting.is_excess(2, command(OTHER), WEIGHT_BYTES - 1)
    assert waiting.is_excess(3, command(OTHER), 0)
    waiting.release_commands(1)
    assert not waiting.is_excess(4, command(OTHER), 0)


def test_events_are_not_counted() -> None:
    waiting = Waiting(1)
    event = "np.evt.validator.acme.prod.train.NodePoolValidated"

    assert not any(waiting.is_excess(position, event, 0) for position in range(1, 5))
