"""One service without a log or a bus: it processes messages, and is woken when work is due."""

from datetime import UTC, datetime, timedelta
from typing import Generic

from nodepool.contract.events import Wake
from nodepool.contract.outcomes import CommandOutcome
from nodepool.engine.folded import Folded, due
from nodepool.engine.step import step
from nodepool.service import Context, I, O, S, Service

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class SingleService(Generic[S, I, O]):
    """A service that processes one message after another, each stored a second after the last.

    folded: what it has made of them.
    position, now: where and when the last one was stored; a test may move `now` forward.
    """

    def __init__(self, service: Service[S, I, O]) -> None:
        self.service = service
        self.folded = Folded(service.initial)
        self.position = 0
        self.now = NOON

    @property
    def state(self) -> S:
        """The state of the service."""
        return self.folded.state

    @property
    def has_work(self) -> bool:
        """Whether something in its work queue is due."""
        moment = due(self.service, self.state)
        return moment is not None and moment <= self.now

    def process(self, message: I | Wake, id: str = "") -> list[O | CommandOutcome]:
        """The outputs for one message; fails if the service could not process it."""
        self.position += 1
        self.now += timedelta(seconds=1)
        context = Context(self.position, self.now, id or f"c{self.position}")
        result = step(self.service, self.folded, message, context)
        assert result.failure is None, result.failure
        self.folded = result.folded
        return list(result.outputs)

    def wake(self) -> list[O | CommandOutcome]:
        """The outputs for one wake."""
        return self.process(Wake(service=self.service.name, due=self.now))

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
