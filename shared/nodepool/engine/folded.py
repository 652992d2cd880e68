"""What a replica has folded: the state of its service, and the outcomes of its commands."""

from dataclasses import dataclass
from datetime import datetime
from typing import Generic

from nodepool.service import I, O, S, Service
from nodepool.state.receipts import Receipts
from nodepool.state.values import replace
from nodepool.state.work import WithWork, WorkQueue


@dataclass(frozen=True, slots=True)
class Folded(Generic[S]):
    """The result of folding the log.

    state: the state of the service.
    receipts: the outcomes of the latest commands of the service.
    """

    state: S
    receipts: Receipts = Receipts()


def work_of(state: object) -> WithWork[str]:
    """Return the state typed as one with a work queue; raise AssertionError if it has none."""
    assert isinstance(state, WithWork), "the state of a service with a reconciler has a work queue"
    return state


def with_work(folded: Folded[S], work: WorkQueue[str]) -> Folded[S]:
    """Return the folded value with another work queue in its state."""
    state = folded.state
    assert isinstance(state, WithWork)
    return folded if work is state.work else Folded(replace(state, work=work), folded.receipts)


def due(service: Service[S, I, O], state: S) -> datetime | None:
    """Return the next moment at which the service must wake; None if there is none."""
    return None if service.reconciler is None else work_of(state).work.next()
