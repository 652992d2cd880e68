"""What users see of the bus and the services, and whether the log will have room."""

from typing import Final

from dashboards.graphs import heatmap, lines
from dashboards.page import Section
from dashboards.panels import Query, override
from dashboards.queries import RATE, buckets, count, quantile, rate
from dashboards.values import table
from nodepool.contract import metrics
from nodepool.contract.metrics import SERVICE_LABEL, Metric


def of_log(metric: Metric) -> str:
    """Return a query for a gauge of the log, which several services may export."""
    return f"max({metric.name})"


_REFUSED: Final = count(metrics.COMMANDS, by="reason", where='result="refused"', window=RATE)
_BROKEN: Final = count(metrics.INVARIANT_VIOLATIONS, by="invariant")

COMMANDS: Final = Section(
    "What do users see?",
    [
        lines(
            "Commands by outcome",
            "A second.",
            [Query(rate(metrics.COMMANDS, by="result"), "{{result}}")],
            unit="cps",
            width=8,
            empty="no command",
        ),
        lines(
            "Commands refused, by why",
            "In each step. InternalError is our fault, TooManyRequests a sender's; the others are "
            "mistakes in what was asked for.",
            [
                Query(
                    _REFUSED,
                    "{{reason}}",
                )
            ],
            width=8,
            empty="none was refused",
        ),
        lines(
            "From a command to its outcome, 99 of 100",
            "By command; dots are traces.",
            [
                Query(
                    quantile(0.99, metrics.COMMAND_SECONDS, by="command"),
                    "{{command}}",
                    exemplars=True,
                )
            ],
            unit="s",
            log=True,
            width=8,
            empty="no command",
        ),
    ],
)

LOG: Final = Section(
    "The log and the read model",
    [
        lines(
            "Storage",
            "What the server stores, the log alone, and the most that it may store.",
            [
                Query(of_log(metrics.STORAGE_USED_BYTES), "all streams"),
                Query(of_log(metrics.LOG_BYTES), "the log"),
                Query(of_log(metrics.STORAGE_LIMIT_BYTES), "limit"),
            ],
            unit="bytes",
            width=8,
        ),
        lines(
            "Messages in the log",
            "All that were stored and not trimmed.",
            [
                Query(of_log(metrics.LOG_MESSAGES), "messages"),
                Query(of_log(metrics.LOG_LAST_POSITION), "newest position"),
            ],
            width=8,
        ),
        lines(
            "Copies of the log",
            "Copies that servers keep, by state. One that is missing is one failure less that "
            "the log survives.",
            [Query(f"max by (state) ({metrics.LOG_COPIES.name})", "{{state}}")],
            stacked=True,
            stairs=True,
            decimals=0,
            width=8,
        ),
        heatmap(
            "How long the bus takes to store a commit",
            "With the log synced to disk: what the disk needs, and how busy the server is.",
            buckets(metrics.COMMIT_SECONDS, SERVICE_LABEL),
            width=8,
            exemplars=True,
        ),
        lines(
            "Commits by result",
            "A second. A conflict is another replica that was first; in doubt is a server that did "
            "not answer.",
            [Query(rate(metrics.COMMITS, SERVICE_LABEL, by="result"), "{{result}}")],
            unit="cps",
            width=8,
        ),
        lines(
            "Read model",
            "Objects that are still to be written, and such that another program had changed.",
            [
                Query(of_log(metrics.READ_MODEL_PENDING_OBJECTS), "still to be written"),
                Query(f"sum(increase({metrics.READ_MODEL_REPAIRS.name}[{RATE}]))", "written again"),
            ],
            width=8,
            decimals=0,
        ),
        table(
            "Rules that did not hold",
            "How often each rule did not hold in the time shown, and where in the log it did not "
            "the last time. Any of them is a fault of this program.",
            {
                "Times": f"{_BROKEN} > 0",
                "Last at position": f"max by (invariant) ({metrics.INVARIANT_LAST_POSITION.name})",
            },
            names={"invariant": "Rule"},
            columns=[override("Last at position", unit="none")],
            height=5,
            empty="all held",
        ),
    ],
)
