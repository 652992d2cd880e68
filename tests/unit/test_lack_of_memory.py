"""A lack of memory in the middle of an input: it ends the process and says nothing of the input."""

import ast
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest

from nodepool.contract.events import Wake
from nodepool.engine.folded import Folded
from nodepool.engine.snapshot import Loader
from nodepool.engine.step import replay, step
from nodepool.service import Context, Reconciler
from support.sample_service import (
    JOB,
    NAME,
    SERVICE,
    Fault,
    Hears,
    Job,
    Says,
    State,
    concerns,
    decide,
    enqueue,
    evolve,
    on_failure,
    page,
    pages_added,
    paper,
    print_now,
    reconcile,
)

P = ParamSpec("P")
T = TypeVar("T")
ROOT = Path(__file__).parents[2]
ROOMS = (
    "shared/nodepool/engine/*.py",
    "shared/nodepool/state/*.py",
    "shared/nodepool/placement/*.py",
    "services/*/*.py",
    "shared/nodepool/nats/objects/re*.py",
    "shared/nodepool/nats/log/re*.py",
)
PURE = [
    path
    for pattern in ROOMS
    for path in sorted(ROOT.glob(pattern))
    if path.name != "main.py"  # It runs the agent as a process.
]
"""Modules that process inputs, and those that make the read model of a state."""
NOON = Context(7, datetime(2026, 1, 1, 12, tzinfo=UTC), "c1")
BEFORE = Folded(State(jobs=State().jobs.set(JOB, Job(pages=2)), work=State().work.put(JOB)))
INPUTS: tuple[Hears | Wake, ...] = (
    print_now(2),
    print_now(2, fault=Fault.DECIDING),
    enqueue(2),
    paper(),
    paper(fault=Fault.DECIDING),
    pages_added(2),
    pages_added(2, fault=Fault.CONCERNS),
    Wake(service=NAME, due=NOON.time),
)


class Memory:
    """Memory that is enough for so many calls of the functions of a service, and for no more."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def take(self) -> None:
        """Counts a call; raises MemoryError where nothing is left for it."""
        if not self.left:
            raise MemoryError
        self.left -= 1

    def before(self, function: Callable[P, T]) -> Callable[P, T]:
        """The function; it takes memory first."""

        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            self.take()
            return function(*args, **kwargs)

        return call


def processed(message: Hears | Wake, memory: Memory, recorded: tuple[Says, ...] | None) -> None:
    """Steps the service on a message, or replays the message with recorded outputs."""
    service = replace(
        SERVICE,
        evolve=memory.before(evolve),
        decide=memory.before(decide),
        reconciler=Reconciler(memory.before(reconcile), memory.before(concerns)),
        on_failure=memory.before(on_failure),
    )
    if recorded is None:
        step(service, BEFORE, message, NOON)
    else:
        replay(service, BEFORE, message, recorded, NOON)


@pytest.mark.parametrize("is_replay", [False, True], ids=["live", "on replay"])
@pytest.mark.parametrize("message", INPUTS, ids=lambda message: type(message).__name__)
def test_wherever_memory_ends_no_input_is_said_to_have_failed(
    message: Hears | Wake, is_replay: bool
) -> None:
    # given how many calls the message takes
    recorded = (page(0), page(1)) if is_replay else None
    plenty = Memory(1_000)
    processed(message, plenty, recorded)
    calls = 1_000 - plenty.left

    # when memory ends before any of these calls, then the process learns of it
    for enough in range(calls):
        with pytest.raises(MemoryError):
            processed(message, Memory(enough), recorded)


def test_a_snapshot_that_finds_no_memory_is_not_a_damaged_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nodepool.engine.snapshot.json.loads", Memory(0).before(json.loads))

    with pytest.raises(MemoryError):
        Loader(State).add(b"[]")


def test_any_exception_is_caught_in_a_pure_module_only_where_a_lack_of_memory_passes() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{handler.lineno}"
        for path in PURE
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Try)
        for before, handler in zip((None, *node.handlers), node.handlers, strict=False)
        if handler.type is not None
        and ast.unparse(handler.type) == "Exception"
        and (before is None or before.type is None or ast.unparse(before.type) != "NO_FAILURE")
    ]

    assert found == []
