"""The telemetry of a service: its log, metrics and spans together."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from nodepool.contract.log import NO_ID, LogId
from nodepool.contract.messages import Envelope
from nodepool.engine.proposal import Processed, Proposal
from nodepool.host.families import exemplar_of
from nodepool.host.logs import Folded, Logger, ServiceLog, SpanIds
from nodepool.host.metrics import Metrics
from nodepool.host.page import MetricsPage
from nodepool.host.settings import Settings
from nodepool.host.source import Source
from nodepool.nats.objects.stored_objects import ObjectKey
from nodepool.service import AnyService, I, S

if TYPE_CHECKING:
    from nodepool.host.spans import Spans


class Telemetry:
    """The telemetry of one replica; decisions do not depend on it.

    source: the values that a scrape reads from the replica.
    page: the page that shows the metrics; by default a page without other services.

    Raises SettingsError if the log file cannot be opened.
    """

    def __init__(
        self,
        service: AnyService,
        settings: Settings,
        source: Source,
        page: MetricsPage | None = None,
    ) -> None:
        self.metrics = Metrics(service, source, page)
        self._log = ServiceLog(service.name, settings)
        self._spans = _spans(service.name, settings)
        self._of = NO_ID
        self._counted = 0

    @property
    def log(self) -> Logger:
        """The logger for lines that belong to no message."""
        return self._log.logger

    def count_processed(self, processed: Iterable[Processed[I]], outcome: str) -> None:
        """Count each input of a batch, and log the batch.

        An input with an output or a failure has a line of its own. The other inputs share a line,
        unless the level of the log is "debug".

        `outcome` is "stored" for a batch that was committed, "quiet" for a batch without outputs,
        which a later commit will cover. An input that failed is a "failure" in either.
        """
        processed = self._drop_counted(tuple(processed))
        spans: Mapping[int, SpanIds] = self._spans.end_spans(processed) if self._spans else {}
        now, log, folded = datetime.now(UTC), self._log, Folded()
        time, counts = now.isoformat(), Counter[tuple[str, str]]()
        for item in processed:
            envelope, entry = item.input.envelope, item.input.entry
            name = envelope.type if isinstance(envelope, Envelope) else envelope.address.name
            result = "failure" if item.failure is not None else outcome
            counts[name, result] += 1
            is_folded = not item.envelopes and item.failure is None
            if is_folded and not log.shows_folded:
                folded.add(name, entry)
                continue
            age = (now - entry.time).total_seconds()
            if not is_folded:
                self._count_outputs(item, name, age)
            if log.shows_messages:
                log.message(item, name, result, age, time, spans.get(entry.position))
        self.metrics.count_processed(counts)
        if log.shows_messages and folded.inputs:
            log.batch(folded, outcome, now)
        log.flush()

    def _count_outputs(self, item: Processed[I], name: str, age: float) -> None:
        is_traced = self._spans is not None and bool(item.envelopes)
        exemplar = exemplar_of(item.envelopes[0].traceparent) if is_traced else None
        self.metrics.count_outputs(item, name, age, exemplar)

    def _drop_counted(self, processed: tuple[Processed[I], ...]) -> tuple[Processed[I], ...]:
        """Return the inputs not counted yet; a commit in doubt makes "quiet" inputs repeat."""
        if not processed:
            return processed
        before = self._counted
        self._counted = max(before, processed[-1].input.entry.position)
        if processed[0].input.entry.position > before:
            return processed
        return tuple(
            item
            for item in processed
            if item.input.entry.position > before or item.envelopes or item.parked is not None
        )

    def count_commit(self, proposal: Proposal[S, I], seconds: float, result: str) -> None:
        """Count a commit, how long it took, and how it ended."""
        exemplar = None
        if self._spans is not None:
            outputs = (output for item in proposal.processed for output in item.envelopes)
            exemplar = next((exemplar_of(output.traceparent) for output in outputs), None)
        self.metrics.count_commit(seconds, result, exemplar)

    def count_restart(self, cause: str, *, is_error: bool) -> None:
        """Count and log that the session ended, and another one follows.

        is_error: whether the session ended because the log has changed.
        """
        self.metrics.count_restart()
        if is_error:
            self.log.error("log changed", cause=cause)
        else:
            self.log.warning("session restarts", cause=cause)

    def count_parked_object(self, key: ObjectKey, cause: str) -> None:
        """Count and log an object of the read model that cannot be stored."""
        self.metrics.count_parked_object()
        self.log.error("object parked", bucket=key[0], key=key[1], cause=cause)

    def count_repairs(self, cause: str, count: int) -> None:
        """Count and log that `count` objects of the read model are written again, and why."""
        self.metrics.count_repairs(count)
        self.log.warning("read model repaired", cause=cause, count=count)
        self._log.flush()

    def begin(self, log: LogId) -> None:
        """Begin to process the next batch of inputs of this log now."""
        if log != self._of:
            self._of, self._counted = log, 0
        if self._spans is not None:
            self._spans.begin(log)

    def trace_proposal(self, proposal: Proposal[S, I]) -> Proposal[S, I]:
        """Return the proposal with a span for each input, which its outputs name as their parent.

        The proposal is unchanged if traces are off.
        """
        return proposal if self._spans is None else self._spans.trace_proposal(proposal)

    def close(self) -> None:
        """Send the remaining spans, and close the log."""
        if self._spans is not None:
            self._spans.close()
        self._log.close()


def _spans(service: str, settings: Settings) -> "Spans | None":
    if settings.traces == "off":
        return None
    # The modules for spans take a tenth of a second to load.
    from nodepool.host.spans import Spans

    return Spans(service, settings.traces)
