"""Laws of placement: indexes follow from what they index, and no machine is given wrongly."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from allocator.decide import SERVICE as ALLOCATOR
from allocator.give_way import match_needs
from allocator.members import Member, Members
from allocator.pool import Pool as AllocatorPool
from allocator.state import State as AllocatorState
from capacity.decide import SERVICE as CAPACITY
from capacity.state import State as CapacityState
from capacity.supply import shares
from contracts.samples import affinity_to, sample
from nodepool.contract import events as on
from nodepool.contract.affinity import Affinity
from nodepool.contract.commands_spot import ReclaimCapacity, ReturnCapacity
from nodepool.contract.conditions import Quota, Validated
from nodepool.contract.keys import PoolKey, machine_key, offering_key, pool_key
from nodepool.contract.messages import Message, OfNode, pool_fields
from nodepool.contract.model import (
    ComputeClass,
    Lifecycle,
    NodePoolSpec,
    ScaleDownStrategy,
    SchedulingPriority,
)
from nodepool.contract.node_states import MachineState
from nodepool.placement.line import Shelf
from nodepool.placement.machines import RECLAIMED, ZAP, Inventory, Machine, labels_of
from nodepool.placement.racks import NVLINK_DOMAIN
from nodepool.placement.ranking import Ranking
from nodepool.service import Context
from support.single import SECOND, SingleService

ZONE, H100, GB200 = "US-EAST-02A", "gd-8xh100ib-i128", "gb200-4x"
LEAF, RACK = "ib.coreweave.cloud/leafgroup", 18
POOLS: Mapping[PoolKey, Mapping[str, Any]] = {
    pool_key("acme", "prod", "any"): {"instance_type": H100},
    pool_key("acme", "prod", "leaf"): {
        "instance_type": H100,
        "affinity": affinity_to([(LEAF, "In", ("l1",))]),
    },
    pool_key("other", "prod", "spot"): {"instance_type": H100, "compute_class": ComputeClass.SPOT},
    pool_key("acme", "prod", "racks"): {"instance_type": GB200},
}
KEYS = tuple(POOLS)
OFFERINGS = (offering_key(ZONE, H100), offering_key(ZONE, GB200))


def accepts(affinity: Affinity | None, machine: Machine) -> bool:
    """Whether an affinity accepts a machine."""
    key = machine_key(machine.zone, machine.name)
    shelf = Shelf.of({"": [key]}, lambda _: labels_of(machine))
    return shelf.labels.find_accepted(affinity) == 1


def name_of(machine: Machine) -> str:
    """The name of a machine."""
    return machine.name


def check_output(state: AllocatorState, output: Message) -> None:
    """An event of the allocator is allowed in the state before it."""
    match output:
        case on.CWNodeAssigned():
            pool, machine = state.pools[output.key], state.inventory.machines[output.machine_key]
            assert not machine.holder
            assert machine.offering == pool.offering
            assert accepts(pool.spec.affinity, machine)
            assert pool.held < (pool.goal or 0)
            since, owner, exchanged = state.find_position(pool)
            assert (output.since, output.owner, output.exchanged) == (since, owner or "", exchanged)
        case on.NodePreemptionRequested():
            pool = state.pools[output.key]
            assert pool.is_spot
            assert pool.members[output.node].may_give_way
            assert not output.beneficiary or not state.pools[PoolKey(output.beneficiary)].is_spot
        case on.NodePreemptionWithdrawn():
            assert state.pools[output.key].members[output.node].may_stay
        case on.MachineReclaimed():
            offering = state.inventory.machines[output.machine_key].offering
            assert state.stock(offering).outstanding > 0
        case _:
            pass


def evolve_checked(state: AllocatorState, message: Message, context: Context) -> AllocatorState:
    """Return the state after a message that the allocator may say in the state before it."""
    check_output(state, message)
    after: AllocatorState = ALLOCATOR.evolve(state, message, context)  # type: ignore[arg-type]  # It is one of its messages.
    return after


class Cell:
    """Capacity and allocator, each of which hears what the other says, and what others could say.

    outputs: everything that the allocator has said.
    """

    def __init__(self) -> None:
        self.capacity: SingleService[CapacityState, Any, Any] = SingleService(CAPACITY, timedelta())
        self.allocator: SingleService[AllocatorState, Any, Any] = SingleService(
            replace(ALLOCATOR, evolve=evolve_checked), timedelta()
        )
        self.generations = Counter[PoolKey]()
        self.machines = 0
        self.outputs: list[Message] = []

    def hear(self, message: Message) -> None:
        """Let both services hear a message, and each what the other says then."""
        services: tuple[SingleService[Any, Any, Any], ...] = (self.capacity, self.allocator)
        heard = [(service, message) for service in services]
        for service, _ in heard:
            service.now += SECOND
        while heard:
            service, each = heard.pop(0)
            outputs: list[Message] = []
            if type(each).__name__ in service.service.inputs:
                outputs += service.process(each)
            outputs += service.wake_until_idle()
            other = self.allocator if service is self.capacity else self.capacity
            heard += [(other, output) for output in outputs]
            if service is self.allocator:
                self.outputs += outputs

    @property
    def pools(self) -> Map[PoolKey, AllocatorPool]:
        """The NodePools as the allocator knows them."""
        return self.allocator.state.pools

    def nodes(self) -> list[tuple[AllocatorPool, str, Member]]:
        """Every Node, in the order of its machine."""
        every = [
            (pool, node, member)
            for pool in self.pools.values()
            for node, member in pool.members.every.items()
        ]
        return sorted(every, key=lambda each: each[1])

    def act(self, what: str, first: int, second: int) -> None:  # noqa: C901  # It lists the acts.
        """Do one thing; the numbers say to which object, and how much."""
        key = KEYS[first % len(KEYS)]
        if what == "machines":
            self._machines(first, second)
        elif what in ("scale", "spoil"):
            self._scale(key, second, is_valid=what == "scale")
        elif what == "delete":
            self._delete(key)
        elif what in ("reclaim", "return"):
            kind = (H100, GB200)[first % 2]
            command = ReclaimCapacity if what == "reclaim" else ReturnCapacity
            count = second % 3 + 1 if kind == H100 else RACK
            self.hear(command(zone=ZONE, instance_type=kind, count=count))
        elif what == "repair":
            for machine in sorted(self.allocator.state.inventory.machines):
                name = machine.rpartition("/")[2]
                self.hear(on.MachineRepaired(zone=ZONE, machine=name))
        elif what == "wipe":
            for each in sorted(self.allocator.state.inventory.machines.values(), key=name_of):
                stay = each.assignment - second % 2
                self.hear(on.MachineWiped(zone=ZONE, machine=each.name, assignment=stay))
        elif what in ("fail to wipe", "take out"):
            state = MachineState.ZAP_FAIL if what == "fail to wipe" else MachineState.TRIAGE
            for each in sorted(self.allocator.state.inventory.machines.values(), key=name_of):
                stay = each.assignment - second % 2
                self.hear(
                    on.MachineStateChanged(
                        zone=ZONE, machine=each.name, state=state, assignment=stay
                    )
                )
        elif nodes := self.nodes():
            for event in self._of_node(what, *nodes[first % len(nodes)], second):
                self.hear(event)

    def _machines(self, first: int, second: int) -> None:
        kind, count = (GB200, RACK) if first % 3 == 0 else (H100, second % 4 + 1)
        for _ in range(count):
            self.machines += 1
            labels = {NVLINK_DOMAIN: f"d{second % 3}", LEAF: f"l{self.machines % 2}"}
            name = f"g{self.machines:03}"
            added = on.MachineAdded(zone=ZONE, machine=name, instance_type=kind, labels=labels)
            self.hear(added.model_copy(update={"wipes": second % 2 == 0}))

    def _scale(self, key: PoolKey, number: int, *, is_valid: bool) -> None:
        self.generations[key] += 1
        is_rack = POOLS[key]["instance_type"] == GB200
        strategy = list(ScaleDownStrategy)[number % 2]
        lifecycle = Lifecycle(scale_down_strategy=strategy)
        target = number % 4 * RACK if is_rack else number % 7
        spec = NodePoolSpec(
            target_nodes=target,
            lifecycle=lifecycle,
            scheduling_priority=SchedulingPriority(value=number % 3),
            **POOLS[key],
        )
        shared = {**pool_fields(key), "uid": key, "generation": self.generations[key]}
        reason = Validated.VALID if is_valid else Validated.INVALID
        self.hear(
            sample(on.NodePoolValidated, **shared, zone=ZONE, spec=spec, reason=reason, fault="")
        )
        if is_valid:
            held = self.capacity.state.pools[key].held
            granted, verdict = max(target, held), Quota.UNDER
            number = self.generations[key]
            self.hear(
                sample(on.QuotaChecked, **shared, granted=granted, number=number, reason=verdict)
            )

    def _delete(self, key: PoolKey) -> None:
        if key not in self.pools:
            return
        of = {**pool_fields(key), "uid": key}
        self.hear(sample(on.NodePoolDeleting, **of))
        for node, member in self.pools[key].members.every.items():
            ended = {"node": node, "zone": ZONE, "assignment": member.assignment}
            self.hear(sample(on.CWNodeDeleted, **of, **ended, removal=member.removal))
        self.hear(on.CWNodePoolDeleted(**pool_fields(key), uid=key, message=""))

    def _of_node(
        self, what: str, pool: AllocatorPool, node: str, member: Member, number: int
    ) -> Iterator[Message]:
        identity = {**pool_fields(pool.key), "zone": ZONE, "node": node}
        of = {**identity, "assignment": member.assignment}
        if what == "register":
            yield sample(on.CWNodeRegistered, **of)
        elif what == "work":
            blocking = number % 2
            yield sample(
                on.NodeActivityChanged, **of, active=number % 3 > 0, blocking_count=blocking
            )
        elif what == "end" and member.registered:
            removal, triage = member.removal or "Unhealthy", number % 4 == 0
            yield sample(on.CWNodeDeleted, **of, uid=pool.uid, removal=removal, triage=triage)
        elif what == "end":
            yield sample(on.CWNodeRegistrationFailed, **of, uid=pool.uid)
        elif what == "warn" and member.is_asked:
            begins = on.PreemptionPending if number % 2 else on.NodePreempted
            yield sample(begins, **of)
        elif what == "keep" and member.requests:
            yield sample(on.NodeKept, **of, request=member.requests)
        elif what == "cordon":
            yield sample(on.CWNodeCordoned, **of, triage=number % 2 == 0)
        elif what == "reserve":
            yield on.NodeReservationChanged(**of, usable=number % 2 == 0)  # type: ignore[arg-type]  # The fields are of an untyped mapping.


class LateAllocator(Cell):
    """A cell whose allocator hears nothing until it catches up; then capacity hears what it says.

    late: what the allocator has not heard yet, and when the log stored it.
    touched: the Nodes of which it has not heard something yet; nothing else happens to them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.late: list[tuple[Message, datetime]] = []
        self.touched: set[str] = set()

    def nodes(self) -> list[tuple[AllocatorPool, str, Member]]:
        return [each for each in super().nodes() if each[1] not in self.touched]

    def hear(self, message: Message) -> None:
        """Let capacity hear a message, and keep it for the allocator."""
        self.capacity.now += SECOND
        if isinstance(message, OfNode):
            self.touched.add(message.node)
        self._take(message)

    def catch_up(self) -> None:
        """Let the allocator hear what it has missed, and capacity what the allocator says then."""
        self.allocator.commits = False
        while self.late:
            missed, self.late = self.late, []
            said: list[Message] = []
            for message, time in missed:
                self.allocator.now = time
                if type(message).__name__ in self.allocator.service.inputs:
                    said += self.allocator.process(message)
            said += self.allocator.wake_until_idle()
            for message in said:
                self._take(message)
        self.allocator.commits, self.allocator.record = True, self.allocator.position
        self.touched.clear()

    def _take(self, message: Message) -> None:
        capacity, time = self.capacity, self.capacity.now
        outputs = (
            capacity.process(message) if type(message).__name__ in capacity.service.inputs else []
        )
        outputs += capacity.wake_until_idle()
        self.late += [(each, time) for each in (message, *outputs)]


ACTS = st.tuples(
    st.sampled_from(
        [
            *("machines", "machines", "scale", "scale", "scale", "register", "register", "work"),
            *("work", "end", "end", "keep", "cordon", "reserve", "reclaim", "return", "repair"),
            *("spoil", "delete", "wipe", "wipe", "fail to wipe", "take out", "warn"),
        ]
    ),
    st.integers(0, 60),
    st.integers(0, 60),
)


def after(acts: list[tuple[str, int, int]]) -> Iterator[Cell]:
    """Yield the cell after each act."""
    cell = Cell()
    for act in acts:
        cell.act(*act)
        yield cell


def check_inventory(inventory: Inventory) -> None:
    """The stock of each offering is what its machines are."""
    for offering in OFFERINGS:
        stock = inventory.stock(offering)
        every = {k: m for k, m in inventory.machines.items() if m.offering == offering}
        free = {key for key, machine in every.items() if not machine.holder}
        domains = {domain: set(queue) for domain, queue in stock.free.items()}
        assert domains == {
            domain: {key for key in free if every[key].domain == domain}
            for domain in {every[key].domain for key in free}
        }
        assert stock.count == len(free)
        assert stock.in_service == sum(machine.is_in_service for machine in every.values())
        held_back = {key for key, machine in every.items() if machine.holder == RECLAIMED}
        assert set(stock.reclaimed) == held_back
        wiped = {key for key, machine in every.items() if machine.holder == ZAP}
        assert set(stock.wiping) == wiped
        unwiped = {key for key, machine in every.items() if machine.unwiped}
        assert wiped <= unwiped
        assert not unwiped & (free | held_back)


def check_rankings(state: AllocatorState | CapacityState) -> None:
    """The ranking of each offering is that of the NodePools that wait for what they lack."""
    for pool in state.pools.values():
        assert pool.goal is None or pool.claim == max(0, pool.goal - pool.held)
    for offering in OFFERINGS:
        ranking = Ranking()
        for pool in state.pools.values():
            if pool.offering == offering:
                ranking = ranking.move(None, pool.waiting)
        assert state.ranking(offering) == ranking
        assert (offering in state.waiting) is (len(ranking) > 0)
        assert ranking.demand == sum(
            pool.claim for pool in state.pools.values() if pool.offering == offering
        )


def check_nodes(cell: Cell) -> None:
    """What is counted of Nodes follows from the Nodes, and both services count as many."""
    state, known = cell.allocator.state, cell.capacity.state
    for key, pool in state.pools.items():
        members = Members(pool.rack_size)
        for node, member in pool.members.every.items():
            members = members.put(node, member)
        assert pool.members == members
        if key in known.pools:
            assert dict(known.pools[key].domains) == dict(pool.domains)
            assert known.pools[key].wait == pool.wait
    for offering in OFFERINGS:
        supply = state.supply(offering)
        pools = [pool for pool in state.pools.values() if pool.offering == offering]
        nodes = [
            (machine_key(ZONE, node), member)
            for pool in pools
            for node, member in pool.members.every.items()
        ]
        assert set(supply.spot) == {pool.key for pool in pools if pool.is_spot}
        assert set(supply.shrinking) == {pool.key for pool in pools if pool.surplus > 0}
        assert set(supply.returning) == {key for key, member in nodes if member.returns}
        assert set(supply.asked) == {key for key, member in nodes if member.may_stay}
        giving_way = {key for key, member in nodes if member.is_preempted}
        assert set(known.giving_way.get(offering, ())) == giving_way
        assert dict(supply.lingering) == {
            key: member.returns_by for key, member in nodes if member.returns_by is not None
        }


@given(st.lists(ACTS, max_size=40))
def test_every_index_equals_its_recomputation_and_no_machine_is_given_wrongly(
    acts: list[tuple[str, int, int]],
) -> None:
    for cell in after(acts):
        check_inventory(cell.allocator.state.inventory)
        check_inventory(cell.capacity.state.inventory)
        check_rankings(cell.allocator.state)
        check_rankings(cell.capacity.state)
        check_nodes(cell)


@given(st.lists(ACTS, max_size=40))
def test_no_node_is_asked_to_give_way_for_nothing(acts: list[tuple[str, int, int]]) -> None:
    for cell in after(acts):
        state = cell.allocator.state
        for offering in OFFERINGS:
            _, unneeded = match_needs(state, offering, {}, {}, cell.allocator.now)
            assert unneeded == []


@given(st.lists(ACTS, max_size=40))
def test_capacity_promises_no_machine_twice_and_none_beyond_a_grant(
    acts: list[tuple[str, int, int]],
) -> None:
    for cell in after(acts):
        state = cell.capacity.state
        for offering in OFFERINGS:
            found = list(shares(state, offering, {}))
            promised = [min(each.available, state.pools[each.key].claim) for each in found]
            assert sum(promised) <= state.stock(offering).free_for_pools
            assert len({each.key for each in found}) == len(found)


WITH_NODES = [
    *(("scale", 0, 3), ("scale", 1, 2), ("machines", 1, 3), ("machines", 1, 3), ("catch up", 0, 0)),
    *(("register", 0, 0) for _ in range(5)),
]
"""Two NodePools of one organisation have their Nodes, and more machines are free."""
LATE_ACTS = st.one_of(
    st.tuples(
        st.sampled_from(["scale", "scale", "end", "reserve", "machines", "register", "spoil"]),
        st.integers(0, 5),
        st.integers(0, 20),
    ),
    st.just(("catch up", 0, 0)),
)


@given(st.lists(LATE_ACTS, max_size=20))
def test_both_services_have_the_same_waits_once_a_late_allocator_has_caught_up(
    acts: list[tuple[str, int, int]],
) -> None:
    cell = LateAllocator()
    for what, first, second in [*WITH_NODES, *acts, ("catch up", 0, 0)]:
        if what == "catch up":
            cell.catch_up()
        else:
            cell.act(what, first, second)

    shown, served = (
        {
            key: waiting.runs
            for ranking in state.waiting.values()
            for key, waiting in ranking.waiting.items()
        }
        for state in (cell.capacity.state, cell.allocator.state)
    )
    assert shown == served
