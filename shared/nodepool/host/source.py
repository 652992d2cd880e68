"""The samples that a scrape reads from a replica, in the thread that serves the scrape."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from nodepool.contract import metrics as contract
from nodepool.contract.metrics import Sample
from nodepool.nats.log.figures import LogFigures
from nodepool.nats.objects.unwritten import Lag


class Progress(NamedTuple):
    """The progress of a replica that is connected to the server.

    pending: messages not yet processed.
    committed: the position up to which all inputs are processed and stored.
    leading: whether this replica made the service's last commit.
    failures: inputs replayed with a recorded output that cannot be folded.
    log: the figures of the log; None if this replica does not know them.
    """

    pending: int
    committed: int
    leading: bool
    failures: int
    log: LogFigures | None = None


def _report_no_progress() -> None:
    return None


def _nothing_written() -> None:
    return None


def _no_samples() -> Iterable[Sample]:
    return ()


@dataclass(frozen=True, slots=True)
class Source:
    """The values that each scrape reads from a replica.

    progress: how far the replica is; None while it is not connected.
    ready: whether the replica does its work.
    oldest_input_age: for how many seconds the oldest message not yet processed has waited.
    lag: how far the read model is behind; None if this replica does not write it.
    samples: the samples of its state.
    version: the version of the program.
    """

    progress: Callable[[], Progress | None] = _report_no_progress
    ready: Callable[[], bool] = lambda: False
    oldest_input_age: Callable[[], float] = lambda: 0.0
    lag: Callable[[], Lag | None] = _nothing_written
    samples: Callable[[], Iterable[Sample]] = _no_samples
    version: str = "unknown"

    def read(self) -> Iterator[Sample]:
        """Yield the current series of the replica.

        Values that are unknown while the replica is disconnected are left out, and
        `nodepool_connected` says why, as
        https://prometheus.io/docs/instrumenting/writing_exporters/#failed-scrapes recommends.
        Only the leader yields the series of the state, so that no sum over replicas counts an
        object twice. A replica that follows another one yields no series of the log either; if no
        replica leads, as on a full disk, each of them yields these.
        """
        now = self.progress()
        yield Sample(contract.BUILD_INFO, (self.version,), 1)
        yield Sample(contract.CONNECTED, (), now is not None)
        yield Sample(contract.READY, (), self.ready())
        yield Sample(contract.LEADING, (), now is not None and now.leading)
        yield Sample(contract.OLDEST_INPUT_AGE, (), self.oldest_input_age())
        if lag := self.lag():
            yield Sample(contract.READ_MODEL_LAG, (), lag.seconds)
            yield Sample(contract.READ_MODEL_PENDING_OBJECTS, (), lag.objects)
        if now is not None:
            yield Sample(contract.PENDING_MESSAGES, (), now.pending)
            yield Sample(contract.COMMITTED_POSITION, (), now.committed)
            yield Sample(contract.REPLAY_FAILURES, (), now.failures)
            if now.log is not None:
                yield from _of_log(now.log)
            if now.leading:
                yield from self.samples()


def _of_log(log: LogFigures) -> Iterator[Sample]:
    yield Sample(contract.LOG_MESSAGES, (), log.messages)
    yield Sample(contract.LOG_BYTES, (), log.bytes)
    yield Sample(contract.LOG_LAST_POSITION, (), log.last)
    yield Sample(contract.STORAGE_USED_BYTES, (), log.storage_used)
    if log.storage_limit is not None:
        yield Sample(contract.STORAGE_LIMIT_BYTES, (), log.storage_limit)
    for state, count in log.copies.items():
        yield Sample(contract.LOG_COPIES, (state,), count)
