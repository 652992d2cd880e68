"""When `nodepool drain` calls a Node drained, and what it says until then."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from nodepool.cli.commands.nodes import is_drained, say_awaited, wait_for_drain
from nodepool.cli.errors import CliError
from nodepool.client.errors import TimedOut
from nodepool.contract.documents import Document

NOTHING, JOB = "nothing runs here", "running: job"
NOON = "2026-01-01T12:00:00Z"


def node(
    phase: str, work: str = NOTHING, ready: str = "", reboots: int = 0, answer_by: str = ""
) -> Document:
    """A Node, on which `work` runs; `ready` is what is known about its machine, if anything.

    `answer_by` is when the machine is given up unless it answers.
    """
    active = {"type": "CWActive", "status": str(work != NOTHING), "message": work}
    conditions = [active, *([{"type": "Ready", "status": ready}] if ready else [])]
    due = {"answerBy": answer_by} if answer_by else {}
    return {"status": {"phase": phase, "conditions": conditions, "reboots": reboots, **due}}


def list_unread(
    first: Document,
    changes: Sequence[Document | None],
    timeout_s: float | None = None,
    usually_s: float = 0,
) -> list[Document | None]:
    """Wait for the drain of a Node that changes like this; return the changes left unread.

    After the last change, the Node changes no more.
    """
    unread = list(changes)

    async def follow() -> AsyncIterator[Document | None]:
        while unread:
            yield unread.pop(0)
        await asyncio.Event().wait()

    asyncio.run(wait_for_drain(first, follow(), timeout_s, usually_s))
    return unread


@pytest.mark.parametrize(
    "drained", [node("cordoned"), node("cordoned", ready="True"), node("cordoned", ready="False")]
)
def test_a_node_is_drained_once_its_machine_says_so(drained: Document) -> None:
    assert is_drained(drained)
    assert list_unread(node("production"), [drained]) == []


@pytest.mark.parametrize("rebooted", [node("rebooting", ready="Unknown", reboots=2), None])
def test_a_drain_has_ended_once_the_node_is_rebooted_or_gone(rebooted: Document | None) -> None:
    first, later = node("production", JOB, reboots=1), node("production", reboots=2)

    assert list_unread(first, [node("draining", JOB, reboots=1), rebooted, later]) == [later]


@pytest.mark.parametrize(
    ("waiting", "awaited"),
    [
        (node("draining", JOB), "waits for what is running: job"),
        (node("cordoned", JOB, ready="True"), "waits for what is running: job"),
        (node("cordoned", ready="Unknown"), "waits for its machine to answer"),
        (node("cordoned", answer_by=NOON), "waits for its machine to answer"),
        (node("draining", JOB, ready="Unknown"), "waits for its machine to answer"),
        (node("rebooting", ready="Unknown"), "waits until its reboot and its verification end"),
        (node("verifying", JOB), "waits until its reboot and its verification end"),
    ],
)
def test_a_node_is_not_drained_while_work_runs_or_its_machine_does_not_answer(
    waiting: Document, awaited: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # when a Node that waits for this changes no more
    with pytest.raises(TimedOut) as error:
        list_unread(node("production"), [waiting], timeout_s=0)

    # then the drain waits as long as it may, and says for what
    assert not is_drained(waiting)
    assert say_awaited(waiting) == awaited
    assert str(error.value) == f"timed out waiting for the drain: the Node {awaited}"
    assert awaited in capsys.readouterr().err


def test_a_drain_of_a_node_that_restarts_already_waits_for_the_work_that_runs_on_there() -> None:
    # given a Node with work that a drain reaches while the Node is verified after a reboot
    first = node("rebooting", JOB, reboots=1)
    changes = [node(phase, JOB, reboots=1) for phase in ("verifying", "draining")]

    # when its work ends after that
    unread = list_unread(first, [*changes, node("cordoned", reboots=1)])

    # then the drain has waited for that
    assert unread == []


def test_a_drain_waits_for_the_answer_of_a_machine_that_seems_idle() -> None:
    # given a machine that has not answered its cordon, and on which a Pod was started meanwhile
    changes = [
        node("cordoned"),
        node("cordoned", answer_by=NOON),
        node("cordoned", JOB, answer_by=NOON),
        node("draining", JOB),
        node("cordoned"),
    ]

    # when the Pod ends after the answer, then the drain has waited for that
    assert list_unread(node("production"), changes) == []


def test_a_drain_waits_for_no_answer_longer_than_it_may() -> None:
    with pytest.raises(TimedOut, match="waits for its machine to answer"):
        list_unread(node("production"), [node("cordoned")], timeout_s=0, usually_s=60)


@pytest.mark.parametrize(
    "stopped",
    [
        node("cordoned"),
        node("cordoned", JOB),
        node("draining", JOB),
        node("rebooting", JOB),
        node("verifying", JOB),
    ],
)
def test_a_drain_that_is_taken_back_is_an_error(stopped: Document) -> None:
    with pytest.raises(CliError, match="the drain was taken back"):
        list_unread(node("production", JOB), [stopped, node("production", JOB)])


def test_a_cordon_that_was_taken_back_before_the_drain_does_not_take_it_back() -> None:
    # given a read model that still shows what was before the command
    before = [node("production"), node("cordoned"), node("production")]

    # when it shows the drain after that
    unread = list_unread(node("cordoned"), [*before, node("draining", JOB), node("cordoned")])

    # then the drain goes on to its end
    assert unread == []
