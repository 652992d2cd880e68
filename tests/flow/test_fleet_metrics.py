"""What an operator sees in metrics of the fleet, with all services, from commands alone."""

from collections.abc import Iterator

import pytest

import lifecycle
import preemption
import quota
from allocator.decide import SERVICE as ALLOCATOR
from lifecycle.decide import SERVICE as LIFECYCLE
from nodepool.contract import metrics
from nodepool.contract.conditions import Quota
from nodepool.contract.events import (
    CapacityChecked,
    CWNodeDeleted,
    NodeUpdated,
    PreemptionInProgress,
    PreemptionPending,
    QuotaChecked,
)
from nodepool.contract.messages import Message
from nodepool.contract.metrics import Histogram, Metric
from nodepool.contract.model import NodePhase
from nodepool.service import AnyService, Context
from preemption.decide import SERVICE as PREEMPTION
from quota.decide import SERVICE as QUOTA
from support.grown import grown
from support.services import services
from support.simulation.faults import hearing, with_events
from support.world_harness import WorldHarness

Series = dict[tuple[str, ...], float]


def shown(world: WorldHarness, metric: Metric) -> Series:
    """The series of a metric by their labels; of a histogram, how many it counts.

    Without the organisation and the cluster, or the zone and the type, that the labels begin with,
    and without counters that are still at 0.
    """
    skipped = 2 if metric.labels[:1] in (("org",), ("zone",)) else 0
    return {
        labels[skipped:]: sum(value.counts) if isinstance(value, Histogram) else value
        for service in world.services
        for each, labels, value in grown(service.samples(world.world.state(service.name)))
        if each == metric
    }


def broken(world: WorldHarness) -> Series:
    """How often each rule was broken."""
    return shown(world, metrics.INVARIANT_VIOLATIONS)


def test_a_boot_that_fails_is_counted_until_its_machine_is_repaired(world: WorldHarness) -> None:
    world.given_data_center(machines=2)
    world.break_machines("n1", "n2", fault="boot", cause="no power")

    world.apply("small", target=1)

    assert shown(world, metrics.NODE_FAILURES) == {("BootFailed",): 2}
    assert shown(world, metrics.MACHINES)["triage", "BootFailed"] == 2
    assert shown(world, metrics.QUEUED_NODES) == {("small",): 1}
    assert shown(world, metrics.TIME_TO_TARGET) == {}

    world.repair_machines("n1", "n2")

    assert ("triage", "BootFailed") not in shown(world, metrics.MACHINES)
    assert shown(world, metrics.TIME_TO_TARGET) == {("default", "up"): 1}
    assert shown(world, metrics.NODE_JOIN) == {(): 1}
    assert broken(world) == {}


def test_the_place_of_a_pool_that_waits_for_machines_is_measured(world: WorldHarness) -> None:
    world.given_data_center(machines=1)
    world.apply("first", 2)
    world.apply("second", 1)

    waiting = shown(world, metrics.QUEUE_POSITION)
    world.given_machines(2)

    assert waiting == {("first",): 1, ("second",): 2}
    assert shown(world, metrics.QUEUE_POSITION) == {}


def test_a_preemption_is_counted_from_its_warning_to_its_end(world: WorldHarness) -> None:
    world.given_data_center(machines=1)
    world.apply("cheap", 1, computeClass="spot")
    world.run_pod("n1", "job", graceS=3600)

    world.preempt("cheap", "n1")
    pending = shown(world, metrics.PREEMPTING_NODES)
    world.pass_time(minutes=3)
    draining = shown(world, metrics.PREEMPTING_NODES)
    world.pass_time(minutes=5)

    assert (pending, draining) == ({("cheap", "pending"): 1}, {("cheap", "drain"): 1})
    assert shown(world, metrics.PREEMPTING_NODES) == {}
    assert shown(world, metrics.PREEMPTIONS) == {("Command",): 1}
    assert shown(world, metrics.PREEMPTION_STAGES) == {("drain",): 1, ("end",): 1}
    assert shown(world, metrics.PREEMPTION_LATE_STAGES) == {}
    assert shown(world, metrics.PREEMPTION_LATENESS) == {("drain",): 1, ("end",): 1}
    assert shown(world, metrics.PREEMPTION_LOST_PODS) == {(): 1}
    assert shown(world, metrics.NODE_REMOVALS) == {("Preempted",): 1}
    assert shown(world, metrics.LOST_NODE_SECONDS) == pytest.approx({("Preempted",): 420}, abs=1)
    assert broken(world) == {}


def test_a_node_is_idle_until_a_workload_runs_on_it(world: WorldHarness) -> None:
    world.given_data_center(machines=2)
    world.apply("small", target=2)
    assert shown(world, metrics.ACTIVE_NODES) == {("small",): 0}
    assert shown(world, metrics.IDLE_NODES) == {("small",): 2}

    world.run_pod("n1", "job")

    assert shown(world, metrics.ACTIVE_NODES) == {("small",): 1}
    assert shown(world, metrics.IDLE_NODES) == {("small",): 1}

    world.scale("small", 1)

    assert shown(world, metrics.ACTIVE_NODES) == {("small",): 1}
    assert shown(world, metrics.IDLE_NODES) == {("small",): 0}


def test_a_cordon_with_a_cause_is_an_unhealthy_node_until_it_ends(world: WorldHarness) -> None:
    world.given_data_center(machines=1)
    world.apply("small", target=1)

    world.command_node("CordonNode", "small", "n1")
    assert shown(world, metrics.UNHEALTHY_NODES) == {("small", "AdminCordon"): 1}
    world.pass_time(minutes=10)
    world.command_node("UncordonNode", "small", "n1")

    assert shown(world, metrics.UNHEALTHY_NODES) == {}
    assert shown(world, metrics.LOST_NODE_SECONDS) == pytest.approx({("AdminCordon",): 600}, abs=1)


def test_a_gpu_that_is_lost_is_one_failure_and_takes_its_machine_out(world: WorldHarness) -> None:
    world.given_data_center(machines=1)
    world.apply("small", target=1, lifecycle={"disableUnhealthyNodeEviction": False})

    world.break_machines("n1", fault="gpu-lost")
    world.pass_time(minutes=1)

    assert shown(world, metrics.NODE_FAILURES) == {("GPUMissing",): 1}
    assert shown(world, metrics.NODE_REMOVALS) == {("Unhealthy",): 1}
    assert [labels for labels in shown(world, metrics.MACHINES) if labels[1]] == [
        ("triage", "GPUMissing")
    ]
    assert broken(world) == {}


def test_a_scale_down_and_a_deletion_leave_counters_and_no_series_of_the_nodepool(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=3)
    world.apply("small", target=3)

    world.scale("small", 1)
    world.delete("small")

    assert shown(world, metrics.NODE_REMOVALS) == {("ScaleDown",): 2, ("PoolDeleted",): 1}
    assert shown(world, metrics.REMOVED_NODE_AGE) == {("ScaleDown",): 2, ("PoolDeleted",): 1}
    assert shown(world, metrics.TIME_TO_TARGET) == {("default", "up"): 1, ("default", "down"): 1}
    of_pools = [metric for metric in metrics.ALL if "pool" in metric.labels]
    assert [metric.name for metric in of_pools if shown(world, metric)] == []
    assert broken(world) == {}


# Services with a fault break rules.


def world_with(service: AnyService) -> WorldHarness:
    """A world in which this service takes the place of the one with its name."""
    return WorldHarness(*(service if each.name == service.name else each for each in services()))


def test_a_quota_that_grants_beyond_its_limit_is_counted() -> None:
    def generous(_state: object, event: quota.Says, _context: Context) -> Iterator[quota.Says]:
        if isinstance(event, QuotaChecked):
            yield event.model_copy(update={"reason": Quota.UNDER, "granted": 5})
        else:
            yield event

    world = world_with(with_events(QUOTA, generous))
    world.given_data_center(machines=2, quota=4)

    world.apply("small", target=5)

    assert broken(world) == {("LimitPassed",): 1}


def test_an_allocator_that_takes_more_than_is_granted_is_counted() -> None:
    def as_if_granted(_state: object, message: Message) -> Message:
        if isinstance(message, QuotaChecked | CapacityChecked):
            return message.model_copy(update={"granted": 3})
        return message

    world = world_with(hearing(ALLOCATOR, as_if_granted))
    world.given_data_center(machines=5, quota=2)

    world.apply("small", target=3)

    assert broken(world) == {("GrantPassed",): 3}


def test_a_preemption_that_drains_at_once_is_counted() -> None:
    def hasty(
        _state: object, event: preemption.Says, context: Context
    ) -> Iterator[preemption.Says]:
        yield event
        if isinstance(event, PreemptionPending):
            fields = event.model_dump(exclude={"since"})
            yield PreemptionInProgress(**fields, evicted_at=context.time)

    world = world_with(with_events(PREEMPTION, hasty))
    world.given_data_center(machines=1)
    world.apply("cheap", 1, computeClass="spot")

    world.preempt("cheap", "n1")

    assert broken(world) == {("PreemptionStageEarly",): 1}


def test_a_lifecycle_that_says_of_a_node_that_it_never_joined_is_counted() -> None:
    def forgetful(
        _state: object, event: lifecycle.Says, _context: Context
    ) -> Iterator[lifecycle.Says]:
        if isinstance(event, CWNodeDeleted):
            yield event.model_copy(update={"registered": False})
        else:
            yield event

    world = world_with(with_events(LIFECYCLE, forgetful))
    world.given_data_center(machines=1)
    world.apply("small", target=1)

    world.scale("small", 0)

    assert broken(world)["CountsDisagree",] == 1


def test_a_lifecycle_that_takes_a_node_back_to_its_boot_is_counted() -> None:
    def backwards(
        _state: object, event: lifecycle.Says, _context: Context
    ) -> Iterator[lifecycle.Says]:
        if isinstance(event, NodeUpdated):
            yield event.model_copy(update={"phase": NodePhase.BOOTING})
        else:
            yield event

    world = world_with(with_events(LIFECYCLE, backwards))
    world.given_data_center(machines=1)
    world.apply("small", target=1)

    world.command_node("CordonNode", "small", "n1")

    assert broken(world)["PhaseOutOfOrder",] >= 1
