"""One service without a log or a bus: it processes messages, and is woken when work is due."""

from datetime import UTC, datetime, timedelta
from typing import Generic

from nodepool.contract.events import Wake
from nodepool.contract.outcomes import CommandOutcome
from nodepool.engine.folded import Folded, due
from nodepool.engine.step import Step, step
from nodepool.service import Context, Failure, I, O, S, Service

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


class SingleService(Generic[S, I, O]):
    """A service that processes one message after another.

    folded: what it has made of them.
    position, now: where and when the last one was stored; a test may move `now` forward.
    record: the position of the last commit record, which is stored right after each message.
    commits: whether a commit is stored after each message.
    tick: how much later each is stored than the last.
    """

    def __init__(self, service: Service[S, I, O], tick: timedelta = SECOND) -> None:
        self.service = service
        self.tick = tick
        self.folded = Folded(service.initial)
        self.position = self.record = 0
        self.commits = True
        self.now = NOON

    @property
    def state(self) -> S:
        """The state of the service."""
        return self.folded.state

    @property
    def due(self) -> datetime | None:
        """When it is to be woken; None where there is no work."""
        return due(self.service, self.state)

    @property
    def has_work(self) -> bool:
        """Whether something in its work queue is due."""
        return self.due is not None and self.due <= self.now

    def process(self, message: I | Wake, id: str = "") -> list[O | CommandOutcome]:
        """The outputs for one message; fails if the service could not process it."""
        result = self._step(message, id)
        assert result.failure is None, result.failure
        return list(result.outputs)

    def failure_of(self, message: I | Wake) -> Failure | None:
        """Processes one message; why it could not be processed, if so."""
        return self._step(message, "").failure

    def _step(self, message: I | Wake, id: str) -> Step[S, O]:
        self.position += 1
        self.now += self.tick
        due = message.due if isinstance(message, Wake) else None
        context = Context(self.position, self.now, id or f"c{self.position}", due, self.record)
        result = step(self.service, self.folded, message, context)
        self.folded = result.folded
        if self.commits:
            self.record = self.position
        return result

    def wake(self) -> list[O | CommandOutcome]:
        """The outputs for one wake."""
        return self.process(Wake(service=self.service.name, due=self.due or self.now))

    def wake_until_idle(self) -> list[O | CommandOutcome]:
        """The outputs for all wakes that are due, one after another."""
        outputs: list[O | CommandOutcome] = []
        while self.has_work:
            outputs += self.wake()
        return outputs

    def hears(self, *messages: I | Wake, id: str = "") -> list[O | CommandOutcome]:
        """The outputs for these messages, and for the wakes that are due after each of them."""
        outputs: list[O | CommandOutcome] = []
        for message in messages:
            outputs += self.process(message, id)
            outputs += self.wake_until_idle()
        return outputs
