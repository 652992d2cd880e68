"""A Node on both sides of an agent, and what is missing of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from agent.actions import Action, Attempt, ListPods, Place, Report
from agent.nodes.missing import NodeView, missing_for_node
from agent.nodes.objects import NodeObject, Reported, WantedNode
from agent.reading import Document
from nodepool.contract.events import NodeReported
from nodepool.contract.log import LogId
from nodepool.contract.model import GPU_TAINT, NodePhase
from nodepool.contract.well_known import MANAGED

PLACE = Place("acme", "prod", "us-east-04a")
LOG = LogId("log-1")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
READY: Document = {"type": "Ready", "status": "True"}
WANTED = WantedNode(
    name="n1",
    zone="us-east-04a",
    pool="train",
    assignment=7,
    version="40",
    phase=NodePhase.PRODUCTION,
    registered=True,
    labels={"team": "blue"},
    annotations={"note": "x"},
    taints=(GPU_TAINT,),
)


def remembered(**changes: object) -> Mapping[str, str]:
    """The annotations of a Node that has all that WANTED says, with changes of what is kept."""
    kept = {
        "log": LOG,
        "assignment": 7,
        "version": 40,
        "labels": ["team"],
        "annotations": ["note"],
        "taints": ["is_gpu:PreferNoSchedule"],
        "unschedulable": False,
        **changes,
    }
    text = json.dumps(
        {key: value for key, value in kept.items() if value is not None},
        separators=(",", ":"),
        sort_keys=True,
    )
    return {"note": "x", MANAGED: text}


FOUND = NodeObject(
    name="n1",
    uid="uid-1",
    version="5",
    labels={"team": "blue"},
    annotations=remembered(),
    taints=(GPU_TAINT,),
    conditions=(READY,),
)
REPORT = NodeReported(
    org="acme",
    cluster="prod",
    pool="train",
    node="n1",
    zone="us-east-04a",
    assignment=7,
    unschedulable=False,
)
CORDONED = replace(WANTED, unschedulable=True, cordon=1, phase=NodePhase.CORDONED)


def missing(
    wanted: WantedNode | None,
    found: NodeObject | None,
    attempt: Attempt | None = None,
    pool_uid: str = "",
) -> Sequence[Action]:
    """What is missing, without the report of the Node itself and what that needs."""
    view = NodeView(wanted, found, (), Reported(), attempt, pool_uid)
    return [
        action
        for action in missing_for_node(view, PLACE, LOG, NOW)
        if not isinstance(action, ListPods)
        and not (isinstance(action, Report) and isinstance(action.event, NodeReported))
    ]
