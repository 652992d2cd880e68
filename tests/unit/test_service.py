from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.samples import SAMPLES
from nodepool.contract.commands import COMMANDS, ScaleNodePool
from nodepool.contract.decode import Unreadable
from nodepool.contract.events import CommandAccepted, CommandRefused, QuotaChecked, Wake
from nodepool.contract.exceptions import describe
from nodepool.contract.keys import PoolKey
from nodepool.contract.log import SUBJECTS as STREAM_SUBJECTS
from nodepool.contract.log import Entry
from nodepool.contract.messages import Envelope, Message
from nodepool.contract.subjects import Address, filters_of, is_taken, subject_of
from nodepool.engine.proposal import Input
from nodepool.service import (
    FILTERS_MAX,
    AnyService,
    Failure,
    Service,
    commit_subject,
)
from support.sample_service import (
    JOB,
    SERVICE,
    Enqueue,
    PagesAdded,
    PaperDelivered,
    PrintNow,
    paper,
    print_now,
)
from support.services import NAMES, services

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
UNKNOWN_COMMAND = "np.cmd.acme.prod.train.MakeCoffee"
SUBJECTS = (
    *(subject_of(sample, getattr(sample, "speaker", "")) for sample in SAMPLES),
    *(f"np.evt.clock.{name}._._.Wake" for name in NAMES),
    *(f"np.evt.{name}.acme.prod.train.CommandAccepted" for name in NAMES),
    *(f"np.commit.{name}" for name in NAMES),
    "np.dead.quota",
    "np.evt.quota.acme.prod.train.LaterEvent",
    "np.evt.stranger.acme.prod.train.QuotaChecked",
    UNKNOWN_COMMAND,
)
MISPLACED = (
    *(f"np.cmd.acme.prod.train.{type(sample).__name__}" for sample in SAMPLES),
    *(f"np.evt.quota.acme.prod.train.{type(sample).__name__}" for sample in SAMPLES),
    *(subject_of(sample, getattr(sample, "speaker", "")) + ".x" for sample in SAMPLES),
    *(subject_of(sample, getattr(sample, "speaker", ""))[:-9] for sample in SAMPLES),
    *(f"np.evt.clock.{name}._._.Alarm" for name in NAMES),
    *(f"np.evt.clock.{name}.Wake" for name in NAMES),
    "np.evt.lifecycle.Wake",
    "np.cmd.Wake",
    "np.cmd",
    "",
)
"""Messages where they do not belong, and subjects of other shapes."""


@pytest.fixture(params=NAMES)
def service(request: pytest.FixtureRequest) -> AnyService:
    """Each service of the control plane."""
    (service,) = services(request.param)
    return service


def matches(pattern: str, subject: str) -> bool:
    """Whether a subject matches a filter without `>`, as the NATS server sees it.

    It takes no message on a subject with an empty token.
    """
    wanted, tokens = pattern.split("."), subject.split(".")
    return (
        len(wanted) == len(tokens)
        and all(tokens)
        and all(want in ("*", token) for want, token in zip(wanted, tokens, strict=True))
    )


def overlap(first: str, second: str) -> bool:
    """Whether some subject matches both filters, as the NATS server sees it."""
    pairs = zip(first.split("."), second.split("."), strict=False)
    for left, right in pairs:
        if left != right and "*" not in (left, right):
            return False
    return first.count(".") == second.count(".")


# What a service reads.


TOKENS = st.sampled_from(
    [*NAMES, *(type(sample).__name__ for sample in SAMPLES), "clock", "np", "cmd", "evt", "_", "é"]
)
SOME_SUBJECTS = st.sampled_from([*SUBJECTS, *MISPLACED]) | st.builds(
    lambda kind, tokens: ".".join(("np", kind, *tokens)),
    st.sampled_from(["cmd", "evt", "commit", "dead", "x"]),
    st.lists(TOKENS, max_size=6),
)
"""Subjects that are right, nearly right, and of any other shape."""


def is_filtered(service: AnyService, subject: str) -> bool:
    """Whether the server lets a subject through for a service."""
    return any(matches(pattern, subject) for pattern in service.filters())


@settings(deadline=None)
@given(st.sampled_from(NAMES), SOME_SUBJECTS)
def test_filters_and_the_check_in_python_let_the_same_subjects_through(
    name: str, subject: str
) -> None:
    (service,) = services(name)

    let_through = is_taken(subject) and service.wants(subject)

    assert let_through is (is_taken(subject) and is_filtered(service, subject))


@settings(deadline=None)
@given(SOME_SUBJECTS)
def test_the_log_takes_the_subjects_that_match_one_of_its_own(subject: str) -> None:
    assert is_taken(subject) is any(matches(pattern, subject) for pattern in STREAM_SUBJECTS)


@settings(deadline=None)
@given(st.sampled_from(NAMES), SOME_SUBJECTS)
def test_a_service_hears_nothing_but_what_it_wants(name: str, subject: str) -> None:
    (service,) = services(name)

    heard = is_taken(subject) and read(service, entry(subject)) is not None

    assert not heard or service.wants(subject)


def test_a_service_wants_its_inputs_its_outputs_its_wakes_and_its_commits(
    service: AnyService,
) -> None:
    kinds = service.inputs.values()
    wanted = {
        commit_subject(service.name),
        *(subject for subject in SUBJECTS if subject_of_one(subject, kinds)),
        *(subject for subject in SUBJECTS if subject.startswith(f"np.evt.{service.name}.")),
    } - {f"np.evt.clock.{name}._._.Wake" for name in NAMES if name != service.name}

    if not service.outputs:
        wanted -= {f"np.evt.{service.name}.acme.prod.train.CommandAccepted"}

    assert {subject for subject in wanted if not service.wants(subject)} == set()


def subject_of_one(subject: str, kinds: Iterable[type[Message]]) -> bool:
    """Whether a subject is one of messages of these classes."""
    return any(matches(each, subject) for kind in kinds for each in filters_of(kind))


def test_no_two_filters_of_a_service_overlap(service: AnyService) -> None:
    filters = service.filters()

    pairs = [
        (first, second)
        for index, first in enumerate(filters)
        for second in filters[index + 1 :]
        if overlap(first, second)
    ]

    assert pairs == []


def test_a_service_that_hears_very_much_reads_every_event_and_its_own_commands() -> None:
    many = hearing(union_of_events() | ScaleNodePool)

    assert len(many.inputs) > FILTERS_MAX
    assert many.filters() == (
        "np.cmd.*.*.*.ScaleNodePool",
        "np.evt.*.*.*.*.*",
        "np.commit.printer",
    )


def test_one_service_refuses_unknown_commands() -> None:
    refusing = [service for service in services() if service.is_unknown_command(UNKNOWN_COMMAND)]

    assert len(refusing) == 1
    assert refusing[0].commands == COMMANDS
    assert not refusing[0].is_unknown_command("np.cmd.acme.prod.train.ScaleNodePool")
    assert not refusing[0].is_unknown_command("np.cmd.acme.prod.MakeCoffee")


def hearing(union: object) -> AnyService:
    """The sample service with other inputs."""
    return Service("printer", union, 0, lambda state, _message, _context: state)  # type: ignore[arg-type]  # A union made at run time.


def union_of_events() -> object:
    """A union of more events than a service has filters for."""
    union: object = Wake
    for sample in SAMPLES:
        union = union | type(sample) if hasattr(sample, "speaker") else union
    return union


# What a service hears and says.


def test_a_service_hears_its_union_and_wakes_where_it_has_a_reconciler() -> None:
    union = {"PrintNow": PrintNow, "Enqueue": Enqueue, "PaperDelivered": PaperDelivered}
    union |= {"PagesAdded": PagesAdded}

    assert SERVICE.inputs == {**union, "Wake": Wake}
    assert replace(SERVICE, reconciler=None).inputs == union


def test_a_service_says_its_union_and_outcomes_where_it_hears_commands() -> None:
    events = {"JobQueued", "PagePrinted", "PaperJammed"}

    assert set(SERVICE.outputs) == {*events, CommandAccepted.__name__, CommandRefused.__name__}
    assert set(replace(SERVICE, hears=PaperDelivered).outputs) == events
    assert hearing(QuotaChecked).outputs == {}


EMPTY = b'{"id": "x", "type": "", "source": "", "data": {}}'
PAPER = b"""{"id": "x", "type": "PaperDelivered", "source": "store",
    "data": {"org": "acme", "cluster": "prod", "pool": "train"}}"""


def entry(subject: str, content: bytes = EMPTY) -> Entry:
    """An entry of the log."""
    return Entry(3, NOON, subject, content, {})


def read(service: AnyService, entry: Entry) -> Envelope[Message] | Unreadable | None:
    """The input that a replica reads at an entry; None if its service hears nothing there."""
    if not service.is_input(entry.subject):
        return None
    return Input[Message](entry, service.kind_at(entry.subject)).envelope


def heard(subject: str) -> object:
    """The message that the sample service reads at a subject."""
    envelope = read(SERVICE, entry(subject))
    return envelope.data if isinstance(envelope, Envelope) else envelope


def test_a_service_reads_a_command_with_the_identity_of_its_subject() -> None:
    envelope = read(SERVICE, entry("np.cmd.acme.prod.train.PrintNow", b'{"pages": 3}'))

    assert isinstance(envelope, Envelope)
    assert envelope.data == print_now(3)


def test_a_service_reads_an_event_of_its_speaker() -> None:
    envelope = read(SERVICE, entry("np.evt.store.acme.prod.train.PaperDelivered", PAPER))

    assert isinstance(envelope, Envelope)
    assert envelope.data == paper()


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param("np.cmd.acme.prod.train.PaperDelivered", id="an event on a command's subject"),
        pytest.param("np.evt.printer.acme.prod.train.PaperDelivered", id="of another speaker"),
        pytest.param("np.evt.desk.acme.prod.train.PrintNow", id="a command on an event's subject"),
        pytest.param("np.evt.clock.quota._._.Wake", id="the wake of another service"),
        pytest.param("np.evt.store.PaperDelivered", id="a subject with too few tokens"),
        pytest.param("np.cmd.PrintNow", id="a command's subject with too few tokens"),
        pytest.param("np.evt.store.acme.prod.train.PaperEaten", id="of an unknown name"),
        pytest.param("np.commit.printer", id="a commit record"),
    ],
)
def test_a_message_anywhere_but_on_its_own_subject_is_not_heard(subject: str) -> None:
    assert heard(subject) is None


def test_an_event_is_believed_on_its_own_subject_only(service: AnyService) -> None:
    as_command = replace(service, commands=COMMANDS)

    for name in service.inputs:
        if name not in COMMANDS:
            unread = read(as_command, entry(f"np.cmd.acme.prod.train.{name}"))
            assert isinstance(unread, Unreadable)
            assert unread.cause == f"{name} is no command: see the last part of the subject"


def test_the_service_that_refuses_unknown_commands_reads_them_as_unreadable() -> None:
    refusing = replace(SERVICE, commands=frozenset({"PrintNow", "Enqueue", "Staple"}))

    assert isinstance(read(refusing, entry(UNKNOWN_COMMAND)), Unreadable)
    assert read(refusing, entry("np.cmd.acme.prod.train.Staple")) is None


def test_a_commit_has_one_literal_subject_for_each_service() -> None:
    assert [commit_subject(name) for name in ("quota", "fleet")] == [
        "np.commit.quota",
        "np.commit.fleet",
    ]


# Failures.


def failure(path: tuple[str, str, str], key: str = "") -> Failure:
    """The failure of an event about this, or of a key of the work queue."""
    return Failure(Address("evt", "", path, "PaperDelivered"), "PaperDelivered", "", "", key=key)


@pytest.mark.parametrize(
    ("subject", "key", "pool"),
    [
        pytest.param(paper().path, "", JOB, id="a message about a NodePool"),
        pytest.param(paper().path, JOB, None, id="a key, which only its service understands"),
        pytest.param(("fleet", "zone", "machine"), "", None, id="a message about a machine"),
        pytest.param(("acme", "prod", "_"), "", None, id="a message about a cluster"),
    ],
)
def test_a_failure_names_the_nodepool_that_it_is_about(
    subject: tuple[str, str, str], key: str, pool: PoolKey | None
) -> None:
    assert failure(subject, key).pool == pool


def test_only_the_sender_of_a_command_waits_for_an_outcome() -> None:
    command = Failure(Address("cmd", "", ("a", "b", "c"), "PrintNow"), "PrintNow", "", "")

    assert command.is_command
    assert not failure(("a", "b", "c")).is_command


class Unprintable(Exception):
    """An exception that breaks when it is to be shown."""

    def __str__(self) -> str:
        raise ValueError("this cannot be shown")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (AssertionError("no"), "AssertionError: no"),
        (KeyError("a"), "KeyError: 'a'"),
        (AssertionError(), "AssertionError"),
        (ValueError("x" * 1_000), f"ValueError: {'x' * 488}"),
        (ValueError("lone surrogate \ud800"), "ValueError: lone surrogate ?"),
        (Unprintable(), "Unprintable"),
    ],
)
def test_an_exception_is_described_by_its_kind_and_its_text(error: Exception, text: str) -> None:
    assert describe(error) == text
