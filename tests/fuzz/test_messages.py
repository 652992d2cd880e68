"""Messages of any content on any subject: read whole or refused with a reason, and in bounds."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from fuzz.bounded import bounded
from fuzz.corpus import RIGHT, content_like, headers, randoms
from nodepool.contract import commands, events
from nodepool.contract.decode import Unreadable, decode, unknown_command
from nodepool.contract.log import Entry, LogId
from nodepool.contract.messages import ID_MAX, Command, Envelope, Event, Message, envelope_of
from nodepool.contract.subjects import address_of, subject_of
from nodepool.engine.failures import refusal, unreadable
from nodepool.engine.proposal import dead_letter
from nodepool.engine.records import follow
from support.hostile import subjects
from support.proposals import NOON

KINDS: dict[str, type[Message]] = {
    name: kind
    for module in (commands, events)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, Command | Event) and not kind.__subclasses__()
}
SUBJECT_BYTES_MAX = 4_000
"""A whole line of the protocol has at most 4,096 bytes."""
REFUSAL_BYTES_MAX = 64 << 10
POSITION = 7


def _check(subject: str, content: bytes, given_headers: dict[str, str]) -> None:
    """Reads a message as whoever hears one of its name does."""
    address = address_of(subject)
    kind = KINDS.get(address.name) if address is not None else None
    if address is None:
        return
    with bounded():
        if kind is None:
            message: Envelope[Message] | Unreadable = unknown_command(
                subject, content, given_headers, POSITION
            )
        else:
            message = decode(kind, subject, content, given_headers, POSITION)
        if isinstance(message, Unreadable):
            _check_refusal(message)
        else:
            _check_read(message, subject)


def _check_refusal(message: Unreadable) -> None:
    """What is unreadable can be refused in a message of moderate size on a subject that fits."""
    failure = unreadable(message)
    outcome = refusal(failure)
    envelope = envelope_of(type(outcome)).model_construct(
        id="7.validator.0",
        type="CommandRefused",
        source="validator",
        correlationid=message.correlationid,
        causationid=message.id,
        data=outcome,
    )
    assert 0 < len(message.id) <= ID_MAX
    assert len(envelope.encode()) < REFUSAL_BYTES_MAX
    if failure.is_command:
        assert len(subject_of(outcome, "validator").encode()) < SUBJECT_BYTES_MAX


def _check_read(message: Envelope[Message], subject: str) -> None:
    """What was read is what its subject says, and is the same when it was stored and read again."""
    address = address_of(subject)
    assert address is not None
    data = message.data
    assert type(data).__name__ == address.name
    assert data.path == address.path or address.service == "clock"
    assert 0 < len(message.id) <= ID_MAX or not isinstance(data, Command)
    again = decode(type(data), subject, message.encode(), {}, POSITION)
    assert isinstance(again, Envelope)
    assert again.data == data


@given(randoms)
def test_a_message_with_something_wrong_in_it_is_read_or_refused(random: Random) -> None:
    subject, document = random.choice(RIGHT)

    content = content_like(random, document)

    _check(subject, content, headers(random))


@given(randoms)
def test_a_message_on_a_subject_that_is_not_its_own_is_read_or_refused(random: Random) -> None:
    own, document = random.choice(RIGHT)

    subject = random.choice((subjects.subject(random), subjects.same_shape(random, own)))

    _check(subject, content_like(random, document), headers(random))


@given(randoms, st.binary(max_size=300))
def test_bytes_of_any_kind_are_read_or_refused(random: Random, content: bytes) -> None:
    _check(random.choice(RIGHT)[0], content, headers(random))


@given(randoms, st.text(max_size=100))
def test_a_subject_of_any_text_has_parts_or_none(random: Random, text: str) -> None:
    for subject in (text, f"np.cmd.{text}", f"np.evt.{text}", subjects.subject(random)):
        address = address_of(subject)

        assert address is None or len(address.path) == 3


@given(randoms, st.binary(max_size=200))
def test_a_commit_record_of_any_content_is_followed_or_not(random: Random, raw: bytes) -> None:
    record = {"position": POSITION, "outputs": 0, "follows": 6, "log": "l1"}

    for content in (raw, content_like(random, {**record, "data": record})):
        entry = Entry(9, NOON, "np.commit.quota", content, {})
        with bounded():
            followed = follow(entry, LogId("l1"), committed=5, before=6, is_chained=True)

        assert followed is None or 5 <= followed.position < followed.first <= 9


@given(randoms, st.binary(max_size=10_000), st.text(), st.text())
def test_everything_can_be_parked(random: Random, content: bytes, cause: str, field: str) -> None:
    entry = Entry(9, NOON, subjects.subject(random), content, headers(random))

    with bounded():
        letter = dead_letter(entry, cause * 100, field * 100)

    assert len(letter) < REFUSAL_BYTES_MAX * 2
