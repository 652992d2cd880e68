"""Nodes: how they join, fail and leave, and whether preemptions keep to their timetable."""

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
    override,
)
from dashboards.queries import (
    OFFERING,
    POOL,
    RATE,
    buckets,
    count,
    of_offerings,
    of_pools,
    quantile,
    with_offering,
)
from dashboards.real_machines import REAL_MACHINES
from dashboards.shared import (
    CLUSTER,
    EVENTS,
    FROM_SERIES,
    INSTANCE_TYPE,
    NODES_UID,
    ORG,
    TO_POOL,
    ZONE,
)
from dashboards.values import stat, table
from nodepool.contract import metrics
from nodepool.contract.metrics import CLUSTER_LABEL

_HERE: Final = ("zone", "instance_type")
_UNHEALTHY: Final = with_offering(of_pools(metrics.UNHEALTHY_NODES, by=f"{POOL}, cause"))
_PREEMPTING: Final = with_offering(of_pools(metrics.PREEMPTING_NODES, by=f"{POOL}, stage"))
_REGISTERED: Final = with_offering(of_pools(metrics.CURRENT_NODES))
_SILENT: Final = (
    f"max by (zone, org, {CLUSTER_LABEL}, widespread) "
    f'({metrics.SILENT_NODES.name}{{zone=~"$zone"}})'
)
_SILENT_LEGEND: Final = f"{{{{org}}}}/{{{{{CLUSTER_LABEL}}}}}, widespread: {{{{widespread}}}}"
_BROKEN: Final = of_offerings(
    metrics.MACHINES, f"{OFFERING}, state, cause", 'state!~"free|assigned|zap"'
)

GLANCE: Final = Section(
    "Are the Nodes well?",
    [
        stat(
            "Unhealthy Nodes",
            "Nodes that are cordoned for a problem, for their rack, or by a command, now.",
            f"sum({_UNHEALTHY})",
            steps=ANY_IS_A_WARNING,
            empty="none",
        ),
        stat(
            "Share of Nodes that can be used",
            "Registered Nodes that are not unhealthy, now.",
            f"1 - (sum({_UNHEALTHY}) or vector(0)) / (sum({_REGISTERED}) > 0)",
            unit="percentunit",
            steps=((None, RED), (0.95, ORANGE), (0.98, YELLOW), (0.99, GREEN)),
            decimals=2,
        ),
        stat(
            "Nodes failed",
            "Failures of Nodes in the time shown.",
            count(metrics.NODE_FAILURES, *_HERE),
            empty="none",
        ),
        stat(
            "Node hours lost",
            "Hours for which registered Nodes could not be used; counted when that ends.",
            f"{count(metrics.LOST_NODE_SECONDS, *_HERE)} / 3600",
            empty="none",
            decimals=2,
        ),
        stat(
            "Preemptions",
            "Preemptions begun in the time shown, of all zones.",
            count(metrics.PREEMPTIONS),
            empty="none",
        ),
        stat(
            "Pods lost to preemptions",
            "Pods that ran on when the time of a preemption was over: they were ended without "
            "their grace period.",
            count(metrics.PREEMPTION_LOST_PODS),
            steps=ANY_IS_A_WARNING,
            empty="none",
        ),
    ],
)

HEALTH: Final = Section(
    "What fails, and where?",
    [
        lines(
            "Unhealthy Nodes by cause",
            "One cause in many NodePools at once is seldom the machines: look at what they share.",
            [Query(f"sum by (cause) ({_UNHEALTHY})", "{{cause}}")],
            stacked=True,
            stairs=True,
            decimals=0,
            width=8,
            empty="none is unhealthy",
        ),
        lines(
            "Failures by cause",
            "Nodes that failed at the boot or later, in each step.",
            [Query(count(metrics.NODE_FAILURES, *_HERE, by="cause", window=RATE), "{{cause}}")],
            width=8,
            empty="none failed",
        ),
        lines(
            "Time lost, by cause",
            "For how long registered Nodes could not be used, counted in the step in which that "
            "ended; unhealthy Nodes beside it shows how many cannot be used now.",
            [Query(count(metrics.LOST_NODE_SECONDS, *_HERE, by="cause", window=RATE), "{{cause}}")],
            unit="s",
            width=8,
            empty="none was lost",
        ),
        table(
            "NodePools with unhealthy Nodes",
            "Where they are now. Click a NodePool for its history; "
            "`nodepool get nodes` names the Nodes.",
            {"Unhealthy": _UNHEALTHY},
            names={
                "org": "Organisation",
                CLUSTER_LABEL: "Cluster",
                "pool": "NodePool",
                "zone": "Zone",
                "instance_type": "Instance type",
                "compute_class": "Class",
                "cause": "Cause",
            },
            columns=[override("NodePool", links=[TO_POOL])],
            sort="Unhealthy",
            width=12,
            height=8,
            empty="no NodePool has an unhealthy Node",
        ),
        lines(
            "Machines out of order",
            "Machines that no NodePool can have, by what they are in and why.",
            [Query(f"sum by (state, cause) ({_BROKEN})", "{{state}} {{cause}}")],
            stacked=True,
            stairs=True,
            decimals=0,
            width=12,
            empty="every machine is free or in use",
        ),
    ],
)

COMING: Final = Section(
    "How do Nodes come and go?",
    [
        heatmap(
            "How long Nodes take to join",
            "From assigning a machine until its Node is registered.",
            buckets(metrics.NODE_JOIN, *_HERE),
            empty="no Node joined",
        ),
        lines(
            "How long nine of ten Nodes take to join",
            "By instance type and zone. A type that gets slower has firmware or images to look at.",
            [
                Query(
                    quantile(0.9, metrics.NODE_JOIN, *_HERE, by=OFFERING),
                    "{{instance_type}} {{zone}}",
                )
            ],
            unit="s",
            empty="no Node joined",
        ),
        lines(
            "Nodes that left, by why",
            "Nodes deleted, in each step.",
            [Query(count(metrics.NODE_REMOVALS, *_HERE, by="reason", window=RATE), "{{reason}}")],
            empty="none left",
        ),
        heatmap(
            "How old Nodes were when they left",
            "From assigning the machine to deleting the Node, of all zones. "
            "Many young ones are churn: "
            "something scales up and down, or machines do not hold.",
            buckets(metrics.REMOVED_NODE_AGE),
            empty="none left",
        ),
        lines(
            "Silent Nodes",
            "Nodes with Ready=Unknown, by cluster. While most of a zone or of a cluster is silent, "
            "none of them is repaired.",
            [Query(f"sum by (org, {CLUSTER_LABEL}, widespread) ({_SILENT})", _SILENT_LEGEND)],
            stacked=True,
            stairs=True,
            decimals=0,
            width=24,
            height=6,
            empty="none is silent",
        ),
        lines(
            "Moves that were refused",
            "Messages that asked a Node for a move that cannot follow on the phase it is in, in "
            "each step; a few are races, many are a fault.",
            [
                Query(
                    count(metrics.REFUSED_NODE_MOVES, by="phase, message", window=RATE),
                    "{{message}} while {{phase}}",
                )
            ],
            width=24,
            height=6,
            empty="none was refused",
        ),
    ],
)

PREEMPTION: Final = Section(
    "Do preemptions keep to their timetable? (warning, drain after 2 minutes, gone after 7)",
    [
        lines(
            "Nodes being preempted",
            "Now, by the stage they are at.",
            [Query(f"sum by (stage) ({_PREEMPTING})", "{{stage}}")],
            stacked=True,
            stairs=True,
            decimals=0,
            width=8,
            empty="none",
        ),
        lines(
            "NodePools with Nodes being preempted",
            "Click one for its history.",
            [
                Query(
                    f"sum by ({POOL}) ({_PREEMPTING})",
                    "{{org}} {{" + CLUSTER_LABEL + "}} {{pool}}",
                )
            ],
            stairs=True,
            decimals=0,
            width=8,
            empty="none",
            links=[FROM_SERIES],
        ),
        lines(
            "Preemptions begun, by why",
            "In each step, of all zones.",
            [Query(count(metrics.PREEMPTIONS, by="cause", window=RATE), "{{cause}}")],
            width=8,
            empty="none",
        ),
        heatmap(
            "Lateness of the stages",
            "How late the stages of preemptions were; more than a second is late.",
            buckets(metrics.PREEMPTION_LATENESS),
            width=8,
            empty="no stage was due",
        ),
        lines(
            "Lateness of 99 of 100 stages",
            "By stage. Customers are promised a second.",
            [Query(quantile(0.99, metrics.PREEMPTION_LATENESS, by="stage"), "{{stage}}")],
            unit="s",
            steps=((None, GREEN), (1, RED)),
            width=8,
            empty="no stage was due",
        ),
        stat(
            "Share of stages late",
            "Of the stages in the time shown, those that came more than a second after their "
            "moment.",
            f"{count(metrics.PREEMPTION_LATE_STAGES)} / ({count(metrics.PREEMPTION_STAGES)} > 0)",
            unit="percentunit",
            steps=((None, GREEN), (0.000_001, YELLOW), (0.001, RED)),
            decimals=2,
            empty="no stage was due",
            height=8,
        ),
        stat(
            "Stages late",
            "Stages in the time shown that came more than a second after their moment.",
            count(metrics.PREEMPTION_LATE_STAGES),
            steps=ANY_IS_BAD,
            height=8,
        ),
    ],
)

NODES: Final = Page(
    uid=NODES_UID,
    title="Node pools / Nodes, health and preemption",
    description="How Nodes join, fail and leave, and whether preemptions keep to their timetable.",
    variables=(ORG, CLUSTER, ZONE, INSTANCE_TYPE),
    annotations=EVENTS,
    sections=(GLANCE, HEALTH, PREEMPTION, COMING, REAL_MACHINES),
)
