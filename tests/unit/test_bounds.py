import pytest

from nodepool.contract.events import CWNodeRegistered, MachineBooted, NodeUpdated
from nodepool.contract.log import MESSAGE_BYTES_MAX
from nodepool.contract.messages import Message
from nodepool.contract.model import NodePhase
from nodepool.engine.bounds import (
    BYTES_MAX,
    OUTPUTS_MAX,
    SMALL_BYTES,
    Size,
    bytes_of,
    fill_a_step,
    size_of,
)


def updated(annotation_bytes: int) -> NodeUpdated:
    """A Node with one annotation of so many bytes."""
    return NodeUpdated(
        org="acme",
        cluster="prod",
        pool="train",
        node="g1",
        zone="US-EAST-04A",
        assignment=1,
        phase=NodePhase.PRODUCTION,
        unschedulable=False,
        labels={},
        annotations={"note": "x" * annotation_bytes},
        taints=(),
    )


BOOTED = MachineBooted(zone="US-EAST-04A", machine="g1", assignment=1)
LARGE = updated(240_000)


def filled(message: Message) -> list[Message]:
    """Return a step that the same message fills."""
    size, messages = Size(), list[Message]()
    while not size.is_full:
        messages.append(message)
        size = size.plus(message)
    return messages


def test_a_step_takes_no_more_small_messages_than_a_batch_holds() -> None:
    messages = filled(BOOTED)

    assert len(messages) == OUTPUTS_MAX == 900
    assert fill_a_step(messages)
    assert not fill_a_step(messages[1:])


def test_a_step_ends_with_the_message_that_takes_it_to_its_most_bytes() -> None:
    messages = filled(LARGE)

    assert len(messages) == 18
    assert BYTES_MAX <= size_of(messages).bytes < BYTES_MAX + bytes_of(LARGE)
    assert fill_a_step(messages)
    assert not fill_a_step(messages[1:])


def test_a_message_counts_the_same_before_it_is_stored_and_when_it_is_read_again() -> None:
    read = NodeUpdated.model_validate_json(LARGE.model_dump_json())

    assert bytes_of(read) == bytes_of(LARGE) > 240_000


def test_only_messages_that_can_be_large_are_measured() -> None:
    registered = CWNodeRegistered(
        org="acme",
        cluster="prod",
        pool="train",
        node="g1",
        zone="US-EAST-04A",
        assignment=1,
        labels={"a": "b"},
        annotations={},
        taints=(),
        message="Node g1 is registered",
    )

    assert bytes_of(BOOTED) == SMALL_BYTES
    assert bytes_of(registered) == len(registered.model_dump_json())


@pytest.mark.parametrize("few", range(BYTES_MAX // MESSAGE_BYTES_MAX))
def test_the_few_messages_that_are_never_measured_cannot_fill_a_step(few: int) -> None:
    assert not Size(few, few * MESSAGE_BYTES_MAX).is_full
