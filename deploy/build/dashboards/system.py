"""The bus, the services and the agents: are they at work, do they keep up, and is there room?"""

from typing import Final

from dashboards.agents import AGENTS
from dashboards.archive import ARCHIVE
from dashboards.console import CONSOLE
from dashboards.gateway import GATEWAY
from dashboards.graphs import heatmap, lines, timeline
from dashboards.log import COMMANDS, LOG, of_log
from dashboards.page import Page, Section, Variable
from dashboards.panels import (
    ANY_IS_BAD,
    GREEN,
    ORANGE,
    RED,
    YELLOW,
    Query,
    override,
)
from dashboards.queries import RANGE, RATE, buckets, count, quantile, rate, series
from dashboards.server import SERVERS
from dashboards.shared import EVENTS, SYSTEM_UID, services_without
from dashboards.values import stat, table
from nodepool.contract import metrics
from nodepool.contract.metrics import SERVICE_LABEL, Metric

_SERVICE: Final = Variable(
    "service", "Service", f"label_values({metrics.CONNECTED.name}, {SERVICE_LABEL})"
)
_NAME: Final = "{{" + SERVICE_LABEL + "}}"


def _gauge(metric: Metric, by: str = SERVICE_LABEL, where: str = "", how: str = "max") -> str:
    return f"{how} by ({by}) ({series(metric, SERVICE_LABEL, where=where)})"


_REPLICAS: Final = f"{SERVICE_LABEL}, instance"
_UP_AND_READY: Final = (
    f"max by ({_REPLICAS}) ({series(metrics.CONNECTED, SERVICE_LABEL)}) "
    f"+ on ({_REPLICAS}) 2 * max by ({_REPLICAS}) ({series(metrics.READY, SERVICE_LABEL)}) "
    f"+ on ({_REPLICAS}) 4 * max by ({_REPLICAS}) ({series(metrics.LEADING, SERVICE_LABEL)})"
)
"""A number for each of what may be true of a replica at once."""
_STATES: Final = {
    **dict.fromkeys(("0", "2", "4", "6"), ("not connected", "red")),
    "1": ("not ready", "orange"),
    "3": ("ready, stands by", "blue"),
    "5": ("leads, not ready", "orange"),
    "7": ("ready, leads", "green"),
}
_OF_REPLICA: Final = f"and on (instance) {series(metrics.BUILD_INFO, SERVICE_LABEL)}"
"""Leaves the figures of the processes that run one of the chosen services, perhaps with others."""
_LIMIT: Final = f"({of_log(metrics.STORAGE_LIMIT_BYTES)} > 0)"
_USED_SHARE: Final = f"{of_log(metrics.STORAGE_USED_BYTES)} / {_LIMIT}"
_UNTIL_FULL: Final = (
    f"({_LIMIT} - {of_log(metrics.STORAGE_USED_BYTES)}) "
    f"/ (deriv({of_log(metrics.STORAGE_USED_BYTES)}[{RANGE}:]) > 0)"
)

GLANCE: Final = Section(
    "Is anything wrong?",
    [
        stat(
            "Services not at work",
            "Services without a ready replica that Prometheus sees, whatever is chosen above.",
            services_without(metrics.READY),
            steps=ANY_IS_BAD,
            width=3,
        ),
        stat(
            "Services without a leader",
            "Services of which no replica that Prometheus sees has stored the last commit, "
            "whatever is chosen above: what they decide waits.",
            services_without(metrics.LEADING),
            steps=ANY_IS_BAD,
            width=3,
        ),
        stat(
            "Oldest message that waits",
            "For how long the oldest message waits that a service has not processed.",
            f"max({_gauge(metrics.OLDEST_INPUT_AGE)})",
            unit="s",
            steps=((None, GREEN), (5, YELLOW), (30, RED)),
            width=3,
            decimals=1,
        ),
        stat(
            "Read model behind",
            "For how long the oldest change waits that `nodepool get` does not show yet.",
            of_log(metrics.READ_MODEL_LAG),
            unit="s",
            steps=((None, GREEN), (5, YELLOW), (30, RED)),
            width=3,
            decimals=1,
        ),
        stat(
            "Dead letters",
            "Messages and objects that could not be processed, in the time shown.",
            count(metrics.DEAD_LETTERS, SERVICE_LABEL),
            steps=ANY_IS_BAD,
            width=3,
        ),
        stat(
            "Rules that did not hold",
            "Times in the time shown that a rule which always holds did not.",
            count(metrics.INVARIANT_VIOLATIONS),
            steps=ANY_IS_BAD,
            empty="none",
            width=3,
        ),
        stat(
            "Storage used",
            "What the server stores, as a share of what it may store.",
            _USED_SHARE,
            unit="percentunit",
            steps=((None, GREEN), (0.7, YELLOW), (0.85, ORANGE), (0.95, RED)),
            empty="no limit",
            width=3,
            decimals=1,
        ),
        stat(
            "Full in",
            "When the storage is full if it grows as it did in the time shown.",
            _UNTIL_FULL,
            unit="dtdurations",
            empty="does not grow",
            width=3,
            graph=False,
            decimals=None,
        ),
    ],
)

REPLICAS: Final = Section(
    "Which replicas are at work?",
    [
        timeline(
            "Replicas",
            "What each replica does. A service needs one that is ready and leads; where none does, "
            "its work waits.",
            _UP_AND_READY,
            _NAME + " {{instance}}",
            _STATES,
            width=16,
            height=10,
        ),
        table(
            "Replicas now",
            "The version of each replica, and up to which position of the log it has committed.",
            {"Committed": _gauge(metrics.COMMITTED_POSITION, _REPLICAS)},
            unshown=[_gauge(metrics.BUILD_INFO, f"{_REPLICAS}, version")],
            names={SERVICE_LABEL: "Service", "instance": "Replica", "version": "Version"},
            columns=[override("Committed", unit="none")],
            width=8,
            height=10,
        ),
        lines(
            "Processor time by replica",
            "Cores that each process uses.",
            [
                Query(
                    f"rate(process_cpu_seconds_total[{RATE}]) {_OF_REPLICA}",
                    "{{service}} {{instance}}",
                )
            ],
            decimals=2,
        ),
        lines(
            "Memory by replica",
            "Memory that each process has, as the operating system counts it. The compose file "
            "and the manifests limit it.",
            [Query(f"process_resident_memory_bytes {_OF_REPLICA}", "{{service}} {{instance}}")],
            unit="bytes",
        ),
        lines(
            "Lost connections and new beginnings",
            "Reconnects to the bus, and replicas that began anew without a restart, by step.",
            [
                Query(
                    count(metrics.RECONNECTS, SERVICE_LABEL, by=SERVICE_LABEL, window=RATE),
                    _NAME + " reconnected",
                ),
                Query(
                    count(metrics.SESSION_RESTARTS, SERVICE_LABEL, by=SERVICE_LABEL, window=RATE),
                    _NAME + " began anew",
                ),
            ],
        ),
        lines(
            "Dead letters and failed replays",
            "Messages parked, in each step; inputs replayed with an output that cannot be folded.",
            [
                Query(
                    count(metrics.DEAD_LETTERS, SERVICE_LABEL, by=SERVICE_LABEL, window=RATE),
                    _NAME + " parked",
                ),
                Query(_gauge(metrics.REPLAY_FAILURES), _NAME + " failed at a replay"),
            ],
        ),
    ],
)

WORK: Final = Section(
    "Do they keep up?",
    [
        lines(
            "Messages that wait",
            "Messages not yet processed, by service; more and more is too much load or a service "
            "that is stuck.",
            [Query(_gauge(metrics.PENDING_MESSAGES, how="min"), _NAME)],
            width=8,
            decimals=0,
        ),
        lines(
            "Oldest message that waits",
            "For how long, by service.",
            [Query(_gauge(metrics.OLDEST_INPUT_AGE, how="min"), _NAME)],
            unit="s",
            steps=((None, GREEN), (30, RED)),
            width=8,
        ),
        lines(
            "From input to outputs, 99 of 100",
            "From storing an input to storing what follows from it, by service.",
            [
                Query(
                    quantile(0.99, metrics.MESSAGE_AGE, SERVICE_LABEL, by=SERVICE_LABEL),
                    _NAME,
                    exemplars=True,
                )
            ],
            unit="s",
            log=True,
            width=8,
            empty="nothing followed",
        ),
        lines(
            "Inputs processed",
            "A second, by outcome: stored has outputs, quiet has none, failure is a dead letter.",
            [Query(rate(metrics.MESSAGES_PROCESSED, SERVICE_LABEL, by="outcome"), "{{outcome}}")],
            unit="cps",
            width=8,
        ),
        lines(
            "Outputs stored",
            "A second, by service.",
            [Query(rate(metrics.MESSAGES_PUBLISHED, SERVICE_LABEL, by=SERVICE_LABEL), _NAME)],
            unit="cps",
            width=8,
        ),
        heatmap(
            "From input to outputs",
            "How often each duration was seen; dots are traces.",
            buckets(metrics.MESSAGE_AGE, SERVICE_LABEL),
            width=8,
            exemplars=True,
            empty="nothing followed",
        ),
    ],
)

SYSTEM: Final = Page(
    uid=SYSTEM_UID,
    title="Node pools / Bus and services",
    description="Are the bus, the services and the agents at work, and will there be room?",
    variables=(_SERVICE,),
    annotations=EVENTS,
    sections=(GLANCE, REPLICAS, WORK, COMMANDS, GATEWAY, LOG, ARCHIVE, CONSOLE, SERVERS, AGENTS),
    since="now-3h",
)
