"""Outputs that the log would not take: they fail their input, and are never tried to be stored."""

import pytest

from nodepool.contract.events import CommandRefused, MachineBooted
from nodepool.contract.keys import TOKEN_MAX
from nodepool.contract.log import MESSAGE_BYTES_MAX
from nodepool.contract.messages import Message
from nodepool.contract.outcomes import build_acceptance
from nodepool.engine.bounds import DATA_BYTES_MAX, Unstorable, check
from nodepool.engine.world import World
from support.large_outputs import TALKATIVE, TOO_LARGE, jammed
from support.sample_service import (
    State,
    enqueue,
    pages_added,
    paper,
    print_now,
    store,
)

TEXT = "the PaperJammed that follows has {} bytes; at most 1032192 fit"


def letters(world: World) -> list[str]:
    return [
        entry.content.decode() for entry in world.log.entries if entry.subject.startswith("np.dead")
    ]


def test_a_command_with_an_output_that_is_too_large_is_refused_and_changes_nothing() -> None:
    world = World([TALKATIVE])
    world.send(print_now(TOO_LARGE))
    world.send(print_now(1))

    world.run_until_idle()

    refused, _ = world.messages(CommandRefused, *[type(build_acceptance(print_now(1), "done"))])
    assert isinstance(refused, CommandRefused)
    assert (refused.reason, refused.message) == ("Invalid", TEXT.format(1032193))
    assert isinstance(world.state("printer"), State)
    assert world.state("printer").pages == 1  # type: ignore[attr-defined]  # Asserted above.
    assert len(letters(world)) == 1
    assert world.replay_differs() == []


def test_an_event_with_an_output_that_is_too_large_is_parked() -> None:
    world = World([TALKATIVE])
    store(world.log, pages_added(TOO_LARGE))
    store(world.log, paper())

    world.run_until_idle()

    assert [TEXT.format(2 * MESSAGE_BYTES_MAX) in letter for letter in letters(world)] == [True]
    assert world.replay_differs() == []


def test_a_key_whose_output_is_too_large_is_parked() -> None:
    world = World([TALKATIVE])
    world.send(enqueue(TOO_LARGE))

    world.run_until_idle()

    assert [TEXT.format(2 * MESSAGE_BYTES_MAX) in letter for letter in letters(world)] == [True]
    assert world.replay_differs() == []


def test_no_message_of_a_commit_is_larger_than_the_server_takes_with_its_headers() -> None:
    check(jammed(DATA_BYTES_MAX))

    with pytest.raises(Unstorable, match="has 1032193 bytes; at most 1032192 fit"):
        check(jammed(DATA_BYTES_MAX + 1))


def booted(zone: str = "z", machine: str = "g1") -> MachineBooted:
    return MachineBooted(zone=zone, machine=machine, assignment=1)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(booted(machine=""), id="nothing"),
        pytest.param(booted(machine="x" * (TOKEN_MAX + 2)), id="too long a name"),
        pytest.param(booted(machine="a b"), id="a blank"),
        pytest.param(booted(zone="a\tb"), id="a tab"),
        pytest.param(booted(zone="a\r\nPUB x 0\r\n"), id="another command of the protocol"),
    ],
)
def test_an_output_about_what_no_subject_can_name_is_not_said(message: Message) -> None:
    with pytest.raises(Unstorable, match="no subject can name what the MachineBooted that follows"):
        check(message)


def test_an_output_about_any_other_name_is_said() -> None:
    for name in ("g1", "a.b", "é", "*", "x" * TOKEN_MAX + "…"):
        check(booted(machine=name))
