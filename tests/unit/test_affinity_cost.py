"""What NodePools with an affinity cost the others, counted in lines that are run.

The lines may grow with the machines and with the NodePools that wait, not with one times the other,
nor with what an affinity holds times any of them.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

import allocator.decide
import capacity.decide
from contracts.samples import KIND, ZONE, affinity_to, sample
from nodepool.contract.affinity import EXPRESSIONS_MAX, TERMS_MAX, VALUES_MAX, Affinity
from nodepool.contract.conditions import Capacity, Quota, Validated
from nodepool.contract.events import CapacityChecked, MachineAdded, NodePoolValidated, QuotaChecked
from nodepool.contract.keys import offering_key, pool_key
from nodepool.contract.messages import Event, pool_fields
from nodepool.contract.model import NodePoolSpec
from nodepool.service import AnyService, Context
from support.work import lines_run

RACK, SLOT = "node.coreweave.cloud/rack", "node.coreweave.cloud/slot"
LINES_A_MACHINE = 40
LINES_A_POOL = 360
"""More than one machine, and one NodePool that waits, take of a decision on their offering."""
BOTH = pytest.mark.parametrize(
    "service", [capacity.decide.SERVICE, allocator.decide.SERVICE], ids=lambda each: each.name
)


def simple(number: int) -> Affinity:
    """An affinity to one rack that is not there."""
    return affinity_to([(RACK, "In", (f"none-{number}",)), (SLOT, "Exists", ())])


def largest(number: int) -> Affinity:
    """The largest affinity that is accepted; each of its expressions but the last holds."""
    others = ((SLOT, "NotIn", ("-",)) for _ in range(EXPRESSIONS_MAX - 2))
    term = [(SLOT, "Exists", ()), *others, (RACK, "In", (f"none-{number}",))]
    terms = [list(term) for _ in range(TERMS_MAX)]
    left = VALUES_MAX - sum(len(values) for _, _, values in term) * TERMS_MAX
    terms[-1][-1] = (RACK, "In", tuple(f"none-{number}-{each}" for each in range(left)))
    return affinity_to(*terms)


def messages(machines: int, pools: int, affinity: Callable[[int], Affinity]) -> Iterator[Event]:
    """So many free machines, and so many NodePools that wait for one each."""
    for number in range(machines):
        labels = {RACK: f"r{number // 8}", SLOT: f"s{number}"}
        yield sample(
            MachineAdded, zone=ZONE, machine=f"m{number}", instance_type=KIND, labels=labels
        )
    for number in range(pools):
        of = pool_fields(pool_key("acme", "prod", f"p{number}"))
        spec = NodePoolSpec(instance_type=KIND, target_nodes=1, affinity=affinity(number))
        shared = {**of, "uid": f"u{number}", "generation": 1}
        valid = {"reason": Validated.VALID, "fault": ""}
        yield sample(NodePoolValidated, **shared, **valid, zone=ZONE, spec=spec)
        yield sample(QuotaChecked, **shared, reason=Quota.UNDER, granted=1)
        yield sample(CapacityChecked, **shared, reason=Capacity.NONE_AVAILABLE, granted=1)


def decision(
    service: AnyService, machines: int, pools: int, affinity: Callable[[int], Affinity]
) -> Callable[[], object]:
    """The next decision of a service on the machines that these NodePools wait for."""
    state, context = service.initial, Context(1, datetime(2026, 1, 1, tzinfo=UTC))
    known = {**service.inputs, **service.outputs}
    for message in messages(machines, pools, affinity):
        if type(message).__name__ in known:
            state = service.evolve(state, message, context)
    reconciler = service.reconciler
    assert reconciler is not None
    return lambda: tuple(reconciler.reconcile(state, offering_key(ZONE, KIND), context))


@BOTH
def test_pools_with_an_affinity_do_not_multiply_with_the_machines(service: AnyService) -> None:
    for machines, pools in ((400, 10), (10, 100), (200, 100)):
        lines = lines_run(decision(service, machines, pools, simple))

        assert lines > pools
        assert lines <= LINES_A_MACHINE * machines + LINES_A_POOL * pools, (machines, pools)


@BOTH
def test_the_largest_affinity_costs_the_same_however_many_machines_there_are(
    service: AnyService,
) -> None:
    few, many = (lines_run(decision(service, count, 3, largest)) for count in (10, 210))

    assert many - few <= LINES_A_MACHINE * 200


@BOTH
def test_an_affinity_is_evaluated_once_for_the_same_free_machines(service: AnyService) -> None:
    decide = decision(service, 100, 3, largest)
    decide()

    assert lines_run(decide) <= LINES_A_POOL * 3
