from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from nodepool.contract.commands import COMMANDS, ScaleNodePool
from nodepool.contract.events import CommandRefused, QuotaSet, Wake
from nodepool.contract.messages import Message
from nodepool.contract.subjects import Address, subject_of
from nodepool.service import (
    FILTERS_MAX,
    AnyService,
    Context,
    Failure,
    Service,
    Step,
    commit_subject,
    describe,
    refused,
    replay,
    step,
)
from support.services import NAMES, services
from unit.samples import SAMPLES

NOW = Context(7, datetime(2026, 1, 1, 12, tzinfo=UTC), "c1")
WAKE = Wake(service="toy", due=NOW.time)
STRAY = "np.cmd.acme.prod.train.MakeCoffee"
SUBJECTS = (
    *(subject_of(sample, getattr(sample, "speaker", "")) for sample in SAMPLES),
    *(f"np.evt.clock.{name}._._.Wake" for name in NAMES),
    *(f"np.evt.{name}.acme.prod.train.CommandAccepted" for name in NAMES),
    *(f"np.commit.{name}" for name in NAMES),
    "np.dead.quota",
    "np.evt.quota.acme.prod.train.LaterEvent",
    "np.evt.stranger.acme.prod.train.QuotaChecked",
    STRAY,
)


def catches(pattern: str, subject: str) -> bool:
    """Whether a subject filter of the engine catches a subject."""
    wanted, tokens = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted = wanted[:-1] + ["*"] * max(1, len(tokens) - len(wanted) + 1)
    return len(wanted) == len(tokens) and all(
        want in ("*", have) for want, have in zip(wanted, tokens, strict=True)
    )


def overlap(one: str, other: str) -> bool:
    """Whether some subject is caught by both filters, as the engine sees it."""
    pairs = zip(one.split("."), other.split("."), strict=False)
    for left, right in pairs:
        if ">" in (left, right):
            return True
        if left != right and "*" not in (left, right):
            return False
    return one.count(".") == other.count(".")


# What a service reads.


@pytest.mark.parametrize("service", services(), ids=NAMES)
def test_whatever_a_service_wants_is_caught_by_its_filters(service: AnyService) -> None:
    wanted = [subject for subject in SUBJECTS if service.wants(subject)]

    caught = [
        subject
        for subject in wanted
        if any(catches(pattern, subject) for pattern in service.filters())
    ]

    assert caught == wanted


@pytest.mark.parametrize("service", services(), ids=NAMES)
def test_a_service_wants_what_it_hears_what_it_says_its_wakes_and_its_commits(
    service: AnyService,
) -> None:
    own = {
        f"np.commit.{service.name}",
        *([f"np.evt.clock.{service.name}._._.Wake"] if "Wake" in service.inputs else []),
        *([STRAY] if service.commands else []),
    }

    wanted = {
        subject
        for subject in SUBJECTS
        if subject.rpartition(".")[2] in service.inputs
        and not subject.endswith(".Wake")
        and ".stranger." not in subject
    }

    said = {
        subject
        for subject in SUBJECTS
        if service.outputs and subject.startswith(f"np.evt.{service.name}.")
    }
    assert {subject for subject in SUBJECTS if service.wants(subject)} == own | wanted | said


@pytest.mark.parametrize("service", services(), ids=NAMES)
def test_no_two_filters_of_a_service_overlap(service: AnyService) -> None:
    filters = service.filters()

    pairs = [
        (one, other)
        for index, one in enumerate(filters)
        for other in filters[index + 1 :]
        if overlap(one, other)
    ]

    assert pairs == []


def test_a_service_that_hears_very_much_reads_every_event_and_its_own_commands() -> None:
    many = toy(hears=union_of_events() | ScaleNodePool)

    assert len(many.inputs) > FILTERS_MAX
    assert many.filters() == ("np.cmd.*.*.*.ScaleNodePool", "np.evt.>", "np.commit.toy")


def test_one_service_refuses_the_commands_that_nobody_knows() -> None:
    refusing = [service for service in services() if service.is_unknown_command(STRAY)]

    assert len(refusing) == 1
    assert refusing[0].commands == COMMANDS
    assert not refusing[0].is_unknown_command("np.cmd.acme.prod.train.ScaleNodePool")
    assert not refusing[0].is_unknown_command("np.cmd.acme.prod.MakeCoffee")


# What a step comes to.


def evolve(state: int, message: Message, _now: Context) -> int:
    """Counts what is heard and said; folding a target of 13 breaks."""
    if isinstance(message, ScaleNodePool) and message.target_nodes == 13:
        raise ValueError("13 cannot be folded")
    return state + 1


def breaks(_state: int, _message: Message, _now: Context) -> Iterable[Message]:
    """Never comes to an output."""
    raise ZeroDivisionError


def decide(state: int, message: Message, _now: Context) -> Iterator[Message]:
    """Says how many it counted; a target of 7 breaks after the first output."""
    yield said(state)
    if isinstance(message, ScaleNodePool) and message.target_nodes == 7:
        raise KeyError("lost")


def on_failure(failure: Failure) -> Iterator[Message]:
    """A command that cannot be taken is refused."""
    if failure.is_command:
        yield refused(failure)


def toy(hears: object = ScaleNodePool | Wake) -> Service[int]:
    """A service that counts."""
    return Service(
        "toy", hears, QuotaSet | CommandRefused, 0, evolve, decide, on_failure=on_failure
    )


def union_of_events() -> object:
    """A union of more events than a service has filters for."""
    union: object = Wake
    for sample in SAMPLES:
        union = union | type(sample) if hasattr(sample, "speaker") else union
    return union


def said(granted: int) -> QuotaSet:
    """What the counting service says."""
    return QuotaSet(org="acme", zone="z", instance_type="t", limit=1, granted=granted)


def scale(target: int) -> ScaleNodePool:
    """A command to the counting service."""
    return ScaleNodePool(org="acme", cluster="prod", pool="train", target_nodes=target)


def refusal(cause: str) -> CommandRefused:
    """How the counting service refuses."""
    return CommandRefused(
        org="acme",
        cluster="prod",
        pool="train",
        command="ScaleNodePool",
        reason="InternalError",
        field="",
        message=cause,
    )


def test_a_question_is_folded_before_it_is_answered_and_its_answers_after() -> None:
    assert step(toy(), 0, scale(1), NOW) == Step(2, (said(1),))


@pytest.mark.parametrize(
    ("target", "cause", "state"),
    [
        pytest.param(7, "KeyError: 'lost'", 2, id="while deciding"),
        pytest.param(13, "ValueError: 13 cannot be folded", 1, id="while folding"),
    ],
)
def test_a_broken_invariant_is_answered_by_what_the_service_says_of_it(
    target: int, cause: str, state: int
) -> None:
    found = step(toy(), 0, scale(target), NOW)

    address = Address("cmd", "", ("acme", "prod", "train"), "ScaleNodePool")
    failure = Failure(address, "ScaleNodePool", "", cause, is_bug=True)
    assert found == Step(state, (refusal(cause),), failure)


def test_trouble_with_an_event_says_nothing_to_anybody() -> None:
    broken = replace(toy(), decide=breaks)

    found = step(broken, 0, WAKE, NOW)

    assert (found.state, found.outputs) == (1, ())
    assert found.failure is not None
    assert (found.failure.is_command, found.failure.is_bug) == (False, True)


def test_settling_folds_the_recorded_answers_instead_of_deciding() -> None:
    recorded = (said(5), said(6))

    assert replay(toy(), 0, scale(7), recorded, NOW) == 3
    assert replay(toy(), 0, scale(13), (refusal(""),), NOW) == 1


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        (AssertionError("no"), "AssertionError: no"),
        (KeyError("a"), "KeyError: 'a'"),
        (AssertionError(), "AssertionError"),
        (ValueError("x" * 1_000), f"ValueError: {'x' * 488}"),
    ],
)
def test_a_mistake_is_told_by_its_kind_and_its_words(mistake: Exception, sentence: str) -> None:
    assert describe(mistake) == sentence


def test_a_commit_has_one_literal_subject_for_each_service() -> None:
    assert [commit_subject(name) for name in ("quota", "fleet")] == [
        "np.commit.quota",
        "np.commit.fleet",
    ]
