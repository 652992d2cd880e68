"""The Prometheus metrics of a service: the counts of a replica.

Their names, types, labels and help texts are defined in `nodepool.contract.metrics`. The number of
values per label is bounded: they are names of the contract, results that the code knows, or
identities of objects that exist now. A value that a sender invents makes no series.
"""

from collections.abc import Mapping
from typing import get_args

from nodepool.contract import metrics as contract
from nodepool.contract.events import CommandAccepted, CommandRefused
from nodepool.contract.events.outcomes import RefusalReason, Result
from nodepool.contract.messages import Command
from nodepool.engine.proposal import Processed
from nodepool.host.page import MetricsPage
from nodepool.host.source import Source
from nodepool.service import AnyService, I

UNKNOWN = "unknown"
"""The value of the labels `message` and `command` for every name that the service does not know."""
OUTCOMES = (
    *(("accepted", result) for result in get_args(Result)),
    *(("refused", reason) for reason in get_args(RefusalReason)),
)
"""How a command may end: `accepted` with its result, or `refused` with the reason."""
COMMIT_RESULTS = ("stored", "conflict", "in_doubt", "failed")
"""How a commit may end."""


class Metrics:
    """The metrics of one replica of a service; every counter exists from the start, at 0.

    page: the page that shows the metrics; by default a page without other services.
    families: the families in which the replica and its edge count.
    """

    def __init__(
        self, service: AnyService, source: Source, page: MetricsPage | None = None
    ) -> None:
        self.page = page or MetricsPage()
        self._messages = frozenset({*service.inputs, *service.outputs})
        families = self.page.add({contract.SERVICE_LABEL: service.name}, source.read)
        self.families = families
        self._processed = families.counters(contract.MESSAGES_PROCESSED)
        self._published = families.counters(contract.MESSAGES_PUBLISHED)
        self._age = families.histogram(contract.MESSAGE_AGE)
        self._commands = families.counters(contract.COMMANDS)
        self._command = families.histograms(contract.COMMAND_SECONDS)
        self._commits = families.counters(contract.COMMITS)
        self._commit = families.histogram(contract.COMMIT_SECONDS)
        self._dead_letters = families.counter(contract.DEAD_LETTERS)
        self._reconnects = families.counter(contract.RECONNECTS)
        self._restarts = families.counter(contract.SESSION_RESTARTS)
        self._repairs = families.counter(contract.READ_MODEL_REPAIRS)
        self._begin(service)

    def _begin(self, service: AnyService) -> None:
        """Begin each counter at 0: Prometheus sees no increase when a series first appears.

        See https://prometheus.io/docs/practices/instrumentation/#avoid-missing-metrics.
        """
        for result in COMMIT_RESULTS:
            self._commits[result,].inc(0)
        for name in service.outputs:
            self._published[name,].inc(0)
        for name, kind in service.inputs.items():
            self._processed[name, "failure"].inc(0)
            if issubclass(kind, Command):
                self._command[name,]  # Creates it.
                for result, reason in OUTCOMES:
                    self._commands[name, result, reason].inc(0)
        if service.commands:
            self._commands[UNKNOWN, "refused", "Invalid"].inc(0)

    def count_processed(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Count processed inputs, given by their name and their outcome.

        The name is that on the subject; a name that the service does not know counts as UNKNOWN.
        The outcome is "stored", "quiet" or "failure".
        """
        for (name, outcome), count in counts.items():
            self._processed[self._known(name), outcome].inc(count)

    def _known(self, name: str) -> str:
        return name if name in self._messages else UNKNOWN

    def count_outputs(
        self,
        item: Processed[I],
        name: str,
        age: float,
        exemplar: Mapping[str, str] | None = None,
    ) -> None:
        """Count the outputs of one processed input, and its dead letter.

        name: the name on the subject of the input.
        age: how many seconds ago the log stored the input.
        exemplar: the exemplar of its age; None for no exemplar.
        """
        name = self._known(name)
        if item.envelopes:
            age = max(0.0, age)
            given = dict(exemplar) if exemplar else None
            self._age.observe(age, given)
            for output in item.envelopes:
                data = output.data
                self._published[type(data).__name__,].inc()
                if isinstance(data, CommandAccepted):
                    self._commands[name, "accepted", data.result].inc()
                elif isinstance(data, CommandRefused):
                    self._commands[name, "refused", data.reason].inc()
                else:
                    continue
                self._command[name,].observe(age, given)
        if item.parked is not None and not _is_fault_of_sender(item):
            self._dead_letters.inc()

    def count_commit(
        self, seconds: float, result: str, exemplar: Mapping[str, str] | None = None
    ) -> None:
        """Count one commit and how long it took; `result` is one of COMMIT_RESULTS.

        The result is "failed" if the server refused the commit for a reason of its own.
        """
        self._commits[result,].inc()
        self._commit.observe(seconds, dict(exemplar) if exemplar else None)

    def count_parked_object(self) -> None:
        """Count an object of the read model that was parked on the dead-letter subject."""
        self._dead_letters.inc()

    def count_repairs(self, count: int) -> None:
        """Count objects of the read model that are written again."""
        self._repairs.inc(count)

    def count_reconnect(self) -> None:
        """Count one reconnect."""
        self._reconnects.inc()

    def count_restart(self) -> None:
        """Count one restarted session."""
        self._restarts.inc()


def _is_fault_of_sender(item: Processed[I]) -> bool:
    """Return whether an input is a command that cannot be read, which its refusal says."""
    outputs = (output.data for output in item.envelopes)
    return any(
        isinstance(data, CommandRefused) and data.reason != "InternalError" for data in outputs
    )
