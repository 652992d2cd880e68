"""When `nodepool drain` calls a Node drained, and what it says until then."""

import pytest

from nodepool.cli.commands.nodes import is_drained, say_awaited
from nodepool.contract.documents import Document

NOTHING, JOB = "nothing runs here", "running: job"


def node(phase: str, work: str = NOTHING, ready: str = "", reboots: int = 0) -> Document:
    """A Node, on which `work` runs; `ready` is what is known about its machine, if anything."""
    active = {"type": "CWActive", "status": str(work != NOTHING), "message": work}
    conditions = [active, *([{"type": "Ready", "status": ready}] if ready else [])]
    return {"status": {"phase": phase, "conditions": conditions, "reboots": reboots}}


@pytest.mark.parametrize(
    "drained",
    [
        node("cordoned"),
        node("cordoned", ready="True"),
        node("cordoned", ready="False"),
        node("rebooting", ready="Unknown"),
        node("production", reboots=1),
    ],
)
def test_a_node_is_drained_once_its_machine_says_so_or_restarted(drained: Document) -> None:
    assert is_drained(drained, 0)


@pytest.mark.parametrize(
    ("waiting", "awaited"),
    [
        (node("draining", JOB), "waits for what is running: job"),
        (node("cordoned", JOB, ready="True"), "waits for what is running: job"),
        (node("cordoned", ready="Unknown"), "waits for its machine to answer"),
        (node("draining", JOB, ready="Unknown"), "waits for its machine to answer"),
    ],
)
def test_a_node_is_not_drained_while_work_runs_or_its_machine_does_not_answer(
    waiting: Document, awaited: str
) -> None:
    assert not is_drained(waiting, 0)
    assert say_awaited(waiting) == awaited
