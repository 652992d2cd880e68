"""One NodePool: what it wants, what it has, and since when it is not at its target, and why."""

from typing import Final

from dashboards.graphs import lines, timeline
from dashboards.page import Annotation, Page, Section, Variable
from dashboards.panels import (
    ANY_IS_A_WARNING,
    GREEN,
    ORANGE,
    YELLOW,
    Query,
    link,
    override,
    texts,
)
from dashboards.queries import IS_DELETED, OFFERING, RATE, series
from dashboards.queries import POOL as POOL_LABELS
from dashboards.shared import IN_STATE, NODES_UID, ORG, POOL_UID, REASONS
from dashboards.values import stat, table
from nodepool.contract import metrics
from nodepool.contract.metrics import CLUSTER_LABEL, Metric

_CHOSEN: Final = f'org="$org",{CLUSTER_LABEL}="$cluster",pool="$pool"'
_POOL_VARIABLES: Final = (
    Variable(ORG.name, ORG.label, ORG.query, many=False),
    Variable(
        "cluster",
        "Cluster",
        f'label_values({metrics.INFO.name}{{org="$org"}}, {CLUSTER_LABEL})',
        many=False,
    ),
    Variable(
        "pool",
        "NodePool",
        f'label_values({metrics.INFO.name}{{org="$org",{CLUSTER_LABEL}="$cluster"}}, pool)',
        many=False,
    ),
)


def _of(metric: Metric, by: str = "", where: str = "") -> str:
    """Return a query for a gauge of the chosen NodePool, grouped by the labels `by`."""
    matchers = f"{_CHOSEN},{where}" if where else _CHOSEN
    return (
        f"max by ({by}) ({metric.name}{{{matchers}}})"
        if by
        else (f"max({metric.name}{{{matchers}}})")
    )


_JOINS: Final = series(metrics.NODE_JOIN, suffix="_bucket")
_OFFERING_OF_POOL: Final = f"max by ({OFFERING}) ({metrics.INFO.name}{{{_CHOSEN}}})"


def _same_offering(expr: str) -> str:
    """Those series that are of the zone and the instance type of the NodePool."""
    return f"{expr} and on ({OFFERING}) {_OFFERING_OF_POOL}"


def _build_reason_query() -> str:
    """Return a query for the reason of each condition as a number, one series per condition."""
    name = metrics.STATUS_CONDITION.name
    reasons = (
        f'{name}{{{_CHOSEN},reason="{reason}"}} * {number}'
        for number, reason in enumerate(REASONS, 1)
    )
    return f"max by (type) ({' or '.join(reasons)})"


_SHOWN: Final = {
    str(number): (reason, IN_STATE[reason]) for number, reason in enumerate(REASONS, 1)
}
_BY_REASON: Final = {reason: (reason, color) for reason, color in IN_STATE.items()}
_BY_STATUS: Final = {
    "True": ("True", GREEN),
    "False": ("False", ORANGE),
    "Unknown": ("Unknown", "purple"),
}
_CELL: Final = {"type": "color-text"}
_NODES_LINK: Final = link("Nodes, health and preemption", NODES_UID)
_DELETING: Final = _of(metrics.STATUS_CONDITION, where=IS_DELETED)
_WANTED: Final = f"({_of(metrics.TARGET_NODES)} unless {_DELETING} or vector(0))"
"""Its target; 0 while it is being deleted."""
_MISSING: Final = f"{_WANTED} - {_of(metrics.CURRENT_NODES)}"

NOW: Final = Section(
    "What does it want, and what does it have?",
    [
        stat("Target", "Nodes it should have.", _of(metrics.TARGET_NODES), width=3),
        stat(
            "Granted",
            "Nodes its organisation's quota allows it. Less than the target: the quota blocks.",
            _of(metrics.GRANTED_NODES),
            width=3,
        ),
        stat("Registered", "Nodes it has.", _of(metrics.CURRENT_NODES), width=3),
        stat(
            "Missing",
            "Nodes that are missing to its target; below 0, Nodes that are too many, such as all "
            "of a NodePool that is being deleted.",
            _MISSING,
            steps=((None, YELLOW), (0, GREEN), (1, YELLOW)),
            width=3,
        ),
        stat(
            "In progress",
            "Nodes assigned and not yet registered: their machines boot.",
            _of(metrics.IN_PROGRESS_NODES),
            width=3,
        ),
        stat(
            "Queued",
            "Nodes that are granted and have no machine yet: there is none free that fits.",
            _of(metrics.QUEUED_NODES),
            steps=ANY_IS_A_WARNING,
            width=3,
        ),
        stat(
            "Unhealthy",
            "Nodes cordoned for a problem, for their rack, or by a command.",
            f"sum({_of(metrics.UNHEALTHY_NODES, 'cause')})",
            steps=ANY_IS_A_WARNING,
            empty="none",
            width=3,
            links=[_NODES_LINK],
        ),
        stat(
            "Being preempted",
            "Spot Nodes that are on their way out.",
            f"sum({_of(metrics.PREEMPTING_NODES, 'stage')})",
            steps=ANY_IS_A_WARNING,
            empty="none",
            width=3,
            links=[_NODES_LINK],
        ),
    ],
)

WHY: Final = Section(
    "Why is it as it is?",
    [
        timeline(
            "Conditions",
            "The reason of each condition over time. They are checked from top to bottom of: "
            "Validated, Quota, Capacity; the first that is not green is what blocks.",
            _build_reason_query(),
            "{{type}}",
            _SHOWN,
            width=16,
            height=8,
        ),
        table(
            "Conditions now",
            "The status and the reason of each condition, and for how long it has had the status. "
            "Its message is in: nodepool describe nodepool.",
            {"For": f"time() - {_of(metrics.CONDITION_SINCE, 'type')}"},
            unshown=[_of(metrics.STATUS_CONDITION, "type, status, reason")],
            names={"type": "Condition", "status": "Status", "reason": "Reason"},
            columns=[
                override("For", unit="dtdurations"),
                override("Reason", mappings=texts(_BY_REASON), custom__cellOptions=_CELL),
                override("Status", mappings=texts(_BY_STATUS), custom__cellOptions=_CELL),
            ],
            width=8,
            height=8,
        ),
        lines(
            "Nodes",
            "What it wants, what it may have, what it has. Marks show changes of the target, "
            "preemptions and unhealthy Nodes.",
            [
                Query(_of(metrics.TARGET_NODES), "target"),
                Query(_of(metrics.GRANTED_NODES), "granted"),
                Query(_of(metrics.CURRENT_NODES), "registered"),
                Query(_of(metrics.ACTIVE_NODES), "active"),
                Query(_of(metrics.IDLE_NODES), "idle"),
                Query(_of(metrics.IN_PROGRESS_NODES), "in progress"),
                Query(_of(metrics.QUEUED_NODES), "queued"),
            ],
            stairs=True,
            decimals=0,
            width=16,
        ),
        lines(
            "Nodes that cannot be used, or will not be for long",
            "Unhealthy Nodes by cause, and preempted ones by the stage they are at.",
            [
                Query(_of(metrics.UNHEALTHY_NODES, "cause"), "unhealthy: {{cause}}"),
                Query(_of(metrics.PREEMPTING_NODES, "stage"), "preempted: {{stage}}"),
            ],
            stacked=True,
            stairs=True,
            decimals=0,
            width=8,
            empty="none",
        ),
    ],
)

AROUND: Final = Section(
    "What does it depend on? (its zone and instance type)",
    [
        lines(
            "Machines of its type in its zone",
            "Where none is free, it waits for one, in the order of class and priority.",
            [
                Query(
                    _same_offering(
                        f"sum by ({OFFERING}, state) "
                        f"(max by ({OFFERING}, state, cause) ({metrics.MACHINES.name}))"
                    ),
                    "{{state}}",
                )
            ],
            stacked=True,
            stairs=True,
            decimals=0,
            width=8,
        ),
        lines(
            "Quota of its organisation",
            "Its organisation's limit for this instance type in this zone, and what is granted.",
            [
                Query(
                    _same_offering(
                        f'max by ({OFFERING}) ({metrics.QUOTA_LIMIT_NODES.name}{{org="$org"}})'
                    ),
                    "limit",
                ),
                Query(
                    _same_offering(
                        f'max by ({OFFERING}) ({metrics.QUOTA_USED_NODES.name}{{org="$org"}})'
                    ),
                    "granted",
                ),
            ],
            stairs=True,
            decimals=0,
            width=8,
            empty="no quota is set",
        ),
        lines(
            "How long a Node takes to join",
            "From assigning a machine until its Node is registered, of all NodePools with this "
            "instance type in this zone.",
            [
                Query(
                    f"histogram_quantile({share}, "
                    + _same_offering(f"sum by (le, {OFFERING}) (rate({_JOINS}[{RATE}]))")
                    + ")",
                    f"{share:.0%}",
                )
                for share in (0.5, 0.9)
            ],
            unit="s",
            width=8,
            empty="no Node joined",
        ),
    ],
)


def _mark(name: str, expr: str, color: str, text: str) -> Annotation:
    return Annotation(name, f"{expr} > 0", color, name, text)


POOL_MARKS: Final = (
    _mark(
        "Target changed",
        f"changes({metrics.TARGET_NODES.name}{{{_CHOSEN}}}[{RATE}])",
        "blue",
        "The target of {{pool}} changed.",
    ),
    _mark(
        "Preemption",
        f"sum by (pool) ({metrics.PREEMPTING_NODES.name}{{{_CHOSEN}}})",
        "purple",
        "Nodes of {{pool}} are being preempted.",
    ),
    _mark(
        "Unhealthy",
        f"sum by (pool) ({metrics.UNHEALTHY_NODES.name}{{{_CHOSEN}}})",
        "red",
        "Nodes of {{pool}} are unhealthy.",
    ),
    _mark(
        "Blocked",
        f"max by ({POOL_LABELS}, type, reason) ("
        f'{metrics.STATUS_CONDITION.name}{{{_CHOSEN},type=~"Validated|Quota|Capacity",'
        'status!="True"})',
        "yellow",
        "{{type}} is {{reason}}.",
    ),
)

POOL: Final = Page(
    uid=POOL_UID,
    title="Node pools / NodePool",
    description="One NodePool: what it wants, what it has, and why it is not at its target.",
    variables=_POOL_VARIABLES,
    annotations=POOL_MARKS,
    sections=(NOW, WHY, AROUND),
)
