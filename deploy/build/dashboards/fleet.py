"""The fleet at a glance: is anything wrong, where, and which NodePool to look at."""

from typing import Final

from dashboards.graphs import heatmap, lines
from dashboards.page import Page, Section
from dashboards.panels import (
    ANY_IS_A_WARNING,
    ANY_IS_BAD,
    GREEN,
    ORANGE,
    RED,
    YELLOW,
    Query,
    link,
    override,
    texts,
)
from dashboards.queries import (
    IS_DELETED,
    OFFERING,
    POOL,
    RATE,
    buckets,
    count,
    node_hours,
    of_offerings,
    of_pools,
    quantile,
    series,
    with_offering,
)
from dashboards.shared import (
    CLUSTER,
    EVENTS,
    FLEET_UID,
    IN_STATE,
    INSTANCE_TYPE,
    NODES_UID,
    ORG,
    SYSTEM_UID,
    TO_POOL,
    ZONE,
    services_without,
)
from dashboards.values import bars, stat, table
from nodepool.contract import metrics
from nodepool.contract.metrics import CLUSTER_LABEL, Metric
from nodepool.usage.uses import Use

_CURRENT: Final = of_pools(metrics.CURRENT_NODES)
_DELETING: Final = f"on ({POOL}) {of_pools(metrics.STATUS_CONDITION, IS_DELETED)}"
_TARGET: Final = f"({of_pools(metrics.TARGET_NODES)} unless {_DELETING})"
"""What NodePools want, but for those that are being deleted."""
_LEAVING: Final = f"{of_pools(metrics.TARGET_NODES)} and {_DELETING}"
_OFF_TARGET: Final = with_offering(f"({_TARGET} != {_CURRENT} or {_LEAVING})")
"""The target of each NodePool that is not at it, or is being deleted."""
_WORSE: Final = count(
    metrics.CONDITION_TRANSITIONS, by="type, reason", where='status!="True"', window=RATE
)
_NODES: Final[dict[str, Metric]] = {
    "granted": metrics.GRANTED_NODES,
    "registered": metrics.CURRENT_NODES,
    "in progress": metrics.IN_PROGRESS_NODES,
    "queued": metrics.QUEUED_NODES,
}
_USED: Final = f"max by (org, {OFFERING}) ({{}})".format(
    series(metrics.QUOTA_USED_NODES, "org", "zone", "instance_type")
)
_LIMIT: Final = f"max by (org, {OFFERING}) ({{}})".format(
    series(metrics.QUOTA_LIMIT_NODES, "org", "zone", "instance_type")
)
_MACHINES: Final = of_offerings(metrics.MACHINES, f"{OFFERING}, state, cause")


def _of_off_target(metric: Metric) -> str:
    return f"{of_pools(metric)} and on ({POOL}) ({_OFF_TARGET})"


def _reason(condition: str) -> str:
    """Return the reason of a condition as a label of that name, per NodePool off its target."""
    labels = f"{POOL}, reason"
    now = of_pools(metrics.STATUS_CONDITION, f'type="{condition}"', labels)
    named = f'label_replace({now}, "{condition.lower()}", "$1", "reason", "(.*)")'
    return f"max by ({POOL}, {condition.lower()}) ({named}) and on ({POOL}) ({_OFF_TARGET})"


def _machines(state: str) -> str:
    """Machines in a state, of each zone and instance type."""
    chosen = of_offerings(metrics.MACHINES, f"{OFFERING}, cause", f'state="{state}"')
    return f"sum by ({OFFERING}) ({chosen})"


_BUDGET: Final = 0.05
"""The share of NodePools that may take too long, as in the objective of the alerts."""


def _slow(window: str) -> str:
    """Return the share of NodePools that took too long, as the rules of the alerts record it."""
    return f"nodepool:time_to_target_slow:ratio_rate{window}{{{_OF_OFFERING}}}"


_OF_OFFERING: Final = 'zone=~"$zone",instance_type=~"$instance_type"'
_COLORED: Final = {reason: (reason, color) for reason, color in IN_STATE.items()}
_CELL: Final = {"type": "color-text"}

GLANCE: Final = Section(
    "Is anything wrong?",
    [
        stat(
            "Alerts firing",
            "Alerts of this control plane that fire now and are for somebody to act on, whatever "
            "is chosen above. Each has a page that says what to do, linked from the alert.",
            'count(ALERTS{alertname=~"Nodepool.*",alertstate="firing",severity!="info"}) '
            "or vector(0)",
            steps=ANY_IS_BAD,
        ),
        stat(
            "Services not at work",
            "Services without a ready replica that Prometheus sees. What such a service decides "
            "waits in the log.",
            services_without(metrics.READY),
            steps=ANY_IS_BAD,
            links=[link("Bus and services", SYSTEM_UID)],
        ),
        stat(
            "NodePools off target",
            "NodePools that have another number of registered Nodes than they should have, but for "
            "those that are being deleted.",
            f"sum({with_offering(f'({_TARGET} != bool {_CURRENT})')})",
            steps=((None, GREEN), (1, YELLOW)),
        ),
        stat(
            "Nodes missing",
            "Nodes that NodePools should have and do not have, whatever the reason.",
            f"sum(clamp_min({with_offering(f'({_TARGET} - {_CURRENT})')}, 0))",
            steps=((None, GREEN), (1, YELLOW)),
        ),
        stat(
            "Machines out of order",
            "Machines in triage and beyond: a technician has to look at them.",
            f"sum({_machines('triage')})",
            steps=ANY_IS_A_WARNING,
            links=[link("Nodes, health and preemption", NODES_UID)],
        ),
        stat(
            "Preemptions late",
            "Stages of preemptions that came more than a second after their moment, in the time "
            "shown. Customers are promised these moments.",
            count(metrics.PREEMPTION_LATE_STAGES),
            steps=ANY_IS_BAD,
            links=[link("Nodes, health and preemption", NODES_UID)],
        ),
    ],
)

POOLS: Final = Section(
    "Which NodePools are off target, and why?",
    [
        table(
            "NodePools off target or being deleted",
            "Each NodePool that has not as many Nodes as it should have, with the reasons of its "
            "conditions. Click its name for its history. Over: the quota is too small. "
            "NoneAvailable: no machine is free. Sufficient and Under: its Nodes are on their way. "
            "PendingDelete: it is being deleted, and its Nodes leave.",
            {
                "Target": _OFF_TARGET,
                "Registered": _of_off_target(metrics.CURRENT_NODES),
                "In progress": _of_off_target(metrics.IN_PROGRESS_NODES),
                "Queued": _of_off_target(metrics.QUEUED_NODES),
                "Position": _of_off_target(metrics.QUEUE_POSITION),
                "Granted": _of_off_target(metrics.GRANTED_NODES),
            },
            unshown=[_reason(name) for name in ("Validated", "Quota", "Capacity", "AtTarget")],
            names={
                "org": "Organisation",
                CLUSTER_LABEL: "Cluster",
                "pool": "NodePool",
                "zone": "Zone",
                "instance_type": "Instance type",
                "compute_class": "Class",
                "validated": "Validated",
                "quota": "Quota",
                "capacity": "Capacity",
                "attarget": "At target",
            },
            columns=[
                override("NodePool", links=[TO_POOL]),
                *(
                    override(name, mappings=texts(_COLORED), custom__cellOptions=_CELL)
                    for name in ("Validated", "Quota", "Capacity", "At target")
                ),
            ],
            sort="Target",
            empty="every NodePool is at its target",
        ),
        lines(
            "Nodes of the fleet",
            "What is wanted and what there is. Between target and granted lies quota, between "
            "granted and registered machines and boots.",
            [
                Query(f"sum({with_offering(_TARGET)})", "target"),
                *(
                    Query(f"sum({with_offering(of_pools(metric))})", name)
                    for name, metric in _NODES.items()
                ),
            ],
            stairs=True,
            decimals=0,
        ),
        lines(
            "Nodes missing, by instance type and zone",
            "Where Nodes are missing: one instance type points to capacity, one zone to the "
            "data centre, all to the control plane.",
            [
                Query(
                    f"sum by ({OFFERING}) "
                    f"(clamp_min({with_offering(f'({_TARGET} - {_CURRENT})')}, 0))",
                    "{{instance_type}} {{zone}}",
                )
            ],
            stairs=True,
            decimals=0,
        ),
    ],
)

TIMES: Final = Section(
    "How long does it take?",
    [
        heatmap(
            "Time to target",
            "From a larger target, or the loss of a Node, until a NodePool is at its target. What "
            "waits for quota does not count.",
            buckets(metrics.TIME_TO_TARGET, "zone", "instance_type", where='direction="up"'),
            empty="no NodePool came to its target",
        ),
        lines(
            "Time to target, nine of ten",
            "What nine of ten NodePools needed at most to grow or to shrink, by instance type. To "
            "shrink may take as long as Pods run.",
            [
                Query(
                    quantile(
                        0.9,
                        metrics.TIME_TO_TARGET,
                        "zone",
                        "instance_type",
                        by="instance_type, direction",
                    ),
                    "{{instance_type}}, {{direction}}",
                )
            ],
            unit="s",
            steps=((None, GREEN), (1_200, ORANGE)),
            empty="no NodePool came to its target",
        ),
        lines(
            "Error budget left",
            "How much of what the objective allows is left: in 30 days 5 % of the NodePools that "
            "grow or lose a Node may take more than 20 minutes. Below 0 the objective is missed.",
            [Query(f"1 - {_slow('30d')} / {_BUDGET}", "{{instance_type}} {{zone}}")],
            unit="percentunit",
            steps=((None, RED), (0, YELLOW), (0.5, GREEN)),
            empty="no NodePool came to its target",
        ),
        lines(
            "How fast the error budget is used",
            "How many times as fast as the objective allows: at 1 the budget lasts for its 30 "
            "days, at 14.4 in an hour a person is woken.",
            [
                Query(
                    f"max({_slow(window)}) / {_BUDGET}",
                    f"in {window}, the worst type and zone",
                )
                for window in ("1h", "6h", "3d")
            ],
            steps=((None, GREEN), (1, YELLOW), (6, RED)),
            empty="no NodePool came to its target",
        ),
        lines(
            "What conditions became",
            "Changes of the status of conditions of all NodePools that were not for the better, in "
            "each step. A reason that comes and goes is a NodePool that flaps.",
            [
                Query(
                    _WORSE,
                    "{{type}}: {{reason}}",
                )
            ],
            empty="none became worse",
        ),
        lines(
            "How long conditions last that are not well",
            "What nine of ten lasted at most, by condition; counted when the status changes.",
            [
                Query(
                    quantile(0.9, metrics.CONDITION_DURATION, by="type", where='status!="True"'),
                    "{{type}}",
                )
            ],
            unit="s",
            empty="none became better",
        ),
    ],
)

_IDLE: Final = with_offering(of_pools(metrics.IDLE_NODES))
_ACTIVE: Final = with_offering(of_pools(metrics.ACTIVE_NODES))

IDLE: Final = Section(
    "Who holds idle Nodes?",
    [
        table(
            "NodePools with idle Nodes",
            "Registered Nodes on which no workload runs, now. Their NodePool keeps them from "
            "others until it is scaled down. Click a NodePool for its history.",
            {"Idle": f"{_IDLE} > 0", "Active": f"{_ACTIVE} and on ({POOL}) ({_IDLE} > 0)"},
            names={
                "org": "Organisation",
                CLUSTER_LABEL: "Cluster",
                "pool": "NodePool",
                "zone": "Zone",
                "instance_type": "Instance type",
                "compute_class": "Class",
            },
            columns=[override("NodePool", links=[TO_POOL])],
            sort="Idle",
            width=12,
            height=8,
            empty="no NodePool has an idle Node",
        ),
        lines(
            "Idle Nodes by organisation and type",
            "Registered Nodes on which no workload runs.",
            [Query(f"sum by (org, instance_type) ({_IDLE})", "{{org}} {{instance_type}}")],
            stacked=True,
            stairs=True,
            decimals=0,
            width=6,
        ),
        lines(
            "Share of Nodes that are active, by type",
            "Registered Nodes on which a workload runs, as a share of all registered Nodes.",
            [
                Query(
                    f"sum by (instance_type) ({_ACTIVE}) "
                    f"/ (sum by (instance_type) ({with_offering(_CURRENT)}) > 0)",
                    "{{instance_type}}",
                )
            ],
            unit="percentunit",
            width=6,
        ),
    ],
)

USAGE: Final = Section(
    "What was used this month?",
    [
        table(
            "Node-hours of this month",
            "Since the month began, in UTC. Used: a workload ran. Idle: none did. Lost: none "
            "could, because the Node was cordoned, rebooted, verified or preempted. Not billable: "
            "Nodes that booted, or were reserved for the control plane. `nodepool usage` counts "
            "any time; shared/USAGE.md says more.",
            {
                title: node_hours(uses, "org, instance_type")
                for title, uses in (
                    ("Used", Use.USED),
                    ("Idle", Use.IDLE),
                    ("Lost", Use.LOST),
                    ("Not billable", f"{Use.JOINING}|{Use.RESERVED}"),
                )
            },
            names={"org": "Organisation", "instance_type": "Instance type"},
            sort="Used",
            empty="no NodePool had a Node this month",
        ),
    ],
)

ROOM: Final = Section(
    "Is there room?",
    [
        lines(
            "Machines by state",
            "What machines do. Free ones are what the next NodePool can get.",
            [Query(f"sum by (state) ({_MACHINES})", "{{state}}")],
            stacked=True,
            stairs=True,
            decimals=0,
        ),
        bars(
            "Machines free",
            "Free machines, by instance type and zone.",
            _machines("free"),
            "{{instance_type}} {{zone}}",
            unit="short",
            steps=((None, RED), (1, YELLOW), (4, GREEN)),
            width=6,
        ),
        bars(
            "Quota used",
            "The share of each limit that is granted. At 100 % the next Node is refused.",
            f"{_USED} / ({_LIMIT} > 0)",
            "{{org}} {{instance_type}} {{zone}}",
            steps=((None, GREEN), (0.8, YELLOW), (0.95, ORANGE), (1, RED)),
            top=1,
            width=6,
            empty="no quota is set",
        ),
    ],
)

FLEET: Final = Page(
    uid=FLEET_UID,
    title="Node pools / Fleet",
    description="Is anything wrong, where, and which NodePool to look at.",
    variables=(ORG, CLUSTER, ZONE, INSTANCE_TYPE),
    annotations=EVENTS,
    sections=(GLANCE, POOLS, TIMES, IDLE, USAGE, ROOM),
)
