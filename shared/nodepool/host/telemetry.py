"""What a service shows of its work: its log, metrics, spans and health pages together."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from nodepool.contract.messages import Envelope
from nodepool.engine.proposal import Processed, Proposal
from nodepool.host.health import HealthServer
from nodepool.host.logs import Logger, ServiceLog
from nodepool.host.metrics import Metrics, Source
from nodepool.host.settings import Settings
from nodepool.host.spans import Spans
from nodepool.nats.stored_objects import ObjectKey
from nodepool.service import AnyService, I, S


class Telemetry:
    """The telemetry of one replica; decisions do not depend on it.

    source: what a scrape reads from the replica.

    Raises SettingsError where the log file cannot be opened.
    """

    def __init__(self, service: AnyService, settings: Settings, source: Source) -> None:
        messages = {*service.inputs, *service.outputs}
        self.metrics = Metrics(service.name, messages, source)
        self._settings = settings
        self._log = ServiceLog(service.name, settings)
        self._spans = Spans(service.name, settings)
        self._pages: HealthServer | None = None

    @property
    def log(self) -> Logger:
        """For lines that belong to no message."""
        return self._log.logger

    def processed(self, processed: Iterable[Processed[I]], outcome: str) -> None:
        """Counts and logs each input of a batch.

        `outcome` is "stored" for a batch that was committed, "quiet" for one without outputs, which
        a later commit will cover. An input that failed is a "failure" in either.
        """
        now = datetime.now(UTC)
        time = now.isoformat()
        count, log = self.metrics.processed, self._log
        for item in processed:
            envelope = item.input.envelope
            if envelope is None:
                continue
            name = envelope.type if isinstance(envelope, Envelope) else envelope.address.name
            result = "failure" if item.failure is not None else outcome
            age = (now - item.input.entry.time).total_seconds()
            count(item, name, result, age)
            if log.shows_messages:
                log.message(item, name, result, age, time)
        log.flush()

    def parked(self, key: ObjectKey, cause: str) -> None:
        """Counts and logs an object of the read model that cannot be stored."""
        self.metrics.parked()
        self.log.error("object parked", bucket=key[0], key=key[1], cause=cause)

    def repaired(self, cause: str, count: int) -> None:
        """Logs that so many objects of the read model are written again, and why."""
        self.log.warning("read model repaired", cause=cause, count=count)
        self._log.flush()

    def traced(self, proposal: Proposal[S, I]) -> Proposal[S, I]:
        """The proposal with a span for each input, which its outputs name as their parent."""
        return self._spans.traced(proposal)

    def serve(self, obstacle: Callable[[], str | None]) -> int:
        """Serves metrics and health pages; the port, -1 where the settings want none.

        `obstacle` is why the service is not ready, as one line; None where it is. Raises
        SettingsError where it cannot listen there.
        """
        if self._settings.metrics_port < 0:
            return -1
        self._pages = HealthServer(self._settings, self.metrics.registry, obstacle)
        return self._pages.port

    def close(self) -> None:
        """Stops serving, sends the spans that are left, and closes the log."""
        if self._pages is not None:
            self._pages.close()
        self._spans.close()
        self._log.close()
