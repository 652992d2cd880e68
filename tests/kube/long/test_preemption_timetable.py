"""The timetable of a preemption in a real cluster, in its real minutes."""

from datetime import UTC, datetime, timedelta

import pytest

from kube.workloads import IGNORES_SIGTERM, Workloads
from nodepool.contract.commands import PreemptNode
from nodepool.contract.timetable import DRAIN_AFTER, GONE_AFTER
from testbed.cluster import wait_until
from testbed.plane import A100

LATE = timedelta(seconds=20)
"""By how much a step may be late on a machine that is busy with other tests."""
SECOND = timedelta(seconds=1)
"""Kubernetes writes its moments in whole seconds."""
HOUR_S = 3_600

pytestmark = pytest.mark.timeout(600)


def test_a_preemption_drains_after_two_minutes_and_is_over_after_seven(
    workloads: Workloads,
) -> None:
    # given a spot Node with a Pod that needs all of its grace period, and one that never ends
    pool = "preempted-in-time"
    (node,) = workloads.nodes(pool, 1, A100, computeClass="spot")
    workloads.run("slow", node, annotations=IGNORES_SIGTERM, terminationGracePeriodSeconds=20)
    endless = {"annotations": IGNORES_SIGTERM, "terminationGracePeriodSeconds": HOUR_S}
    workloads.run("endless", node, **endless)

    # when it is preempted
    earliest = datetime.now(UTC)
    workloads.send(PreemptNode, pool, node=node)
    latest = datetime.now(UTC)
    wait_until("it is cordoned", lambda: is_cordoned(workloads, node), LATE.total_seconds())

    # then its Pods run on for two minutes, and are told to end then
    drained_s = (DRAIN_AFTER + LATE).total_seconds()
    wait_until("its Pods are to end", lambda: workloads.is_terminating("slow"), drained_s)
    for name, own in (("slow", 20), ("endless", HOUR_S)):
        grace_s, ends = workloads.wait_until_terminating(name)
        began = ends - timedelta(seconds=grace_s)
        assert grace_s == own
        assert earliest + DRAIN_AFTER - SECOND <= began <= latest + DRAIN_AFTER + LATE

    # and one that does not end in time goes with its Node after seven
    workloads.wait_until_ended("slow")
    assert workloads.plane.node(node) is not None
    left_s = (latest + GONE_AFTER + LATE - datetime.now(UTC)).total_seconds()
    wait_until("the Node is gone", lambda: workloads.plane.node(node) is None, left_s)
    assert datetime.now(UTC) >= earliest + GONE_AFTER
    workloads.wait_until_gone(node)
    assert workloads.pod("endless") is None
    warnings = ["Preemption pending", "Preemption in progress", "Deleted for preemption"]
    told_s = LATE.total_seconds() * 2
    wait_until("all is told", lambda: reasons(workloads, node) == warnings, told_s)


def reasons(workloads: Workloads, node: str) -> list[str]:
    """What the Warnings about a Node are called, in the order of their times."""
    return [each.reason for each in workloads.warnings("Node", node)]


def is_cordoned(workloads: Workloads, node: str) -> bool:
    """Whether a Node of the cluster takes no new Pods."""
    found = workloads.node(node)
    return found is not None and found["spec"].get("unschedulable", False) is True
