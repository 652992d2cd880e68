"""Which spot Nodes give way: to a `default` NodePool that is short, or to an operator.

A NodePool of class `spot` may lose its Nodes where the capacity is needed elsewhere; see
https://docs.coreweave.com/platform/capacity-plans/spot-node-pools. Just as many go as are needed
beside the machines that are free, and those that come back anyway.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from allocator.members import Member
from allocator.pool import Pool, Stage
from allocator.state import State
from nodepool.contract.affinity import Affinity
from nodepool.contract.events import NodePreemptionRequested
from nodepool.contract.keys import MachineKey, OfferingKey, PoolKey, machine_key, pool_path
from nodepool.contract.messages import pool_fields
from nodepool.contract.model import RemovalReason
from nodepool.state.inventory import Machine, labels_of
from nodepool.state.label_index import LabelIndex
from nodepool.state.ranking import Ranking


class Victim(NamedTuple):
    """A spot Node that may have to go."""

    pool: Pool
    node: str
    member: Member

    @property
    def machine(self) -> MachineKey:
        """The machine that it is."""
        return machine_key(self.pool.zone, self.node)


def victims(state: State, offering: OfferingKey) -> list[Victim]:
    """The spot Nodes of an offering that may have to go, in the order in which they do.

    First those that leave already and wait for a Pod to end; then those of the NodePool with the
    lowest priority; of equals an idle one before an active one, the newest, and by name.
    """
    pools = (state.pools[key] for key in state.supply(offering).spot)
    found = (
        Victim(pool, node, member)
        for pool in pools
        if pool.stage is Stage.ACTIVE
        for node, member in pool.members
        if member.removal is None or (member.removal is RemovalReason.SCALE_DOWN and member.blocked)
    )
    return sorted(found, key=_order)


def _order(victim: Victim) -> tuple[bool, int, bool, int, str]:
    member = victim.member
    stays = member.removal is None
    return stays, victim.pool.spec.priority, member.active, -member.assignment, victim.node


def preempted(state: State, offering: OfferingKey) -> Iterator[NodePreemptionRequested]:
    """The spot Nodes that an operator needs, then those that NodePools need that are short."""
    if not is_short(state, offering):
        return
    spot = victims(state, offering)
    line = _Line([*_coming(state, offering), *(_machine(state, each.machine) for each in spot)])
    first = line.left - len(spot)
    for place in line.take(None, state.outstanding(offering)):
        if place >= first:
            yield _requested(spot[place - first], None)
    for key in state.waiting.get(offering, Ranking()):
        pool = state.pools[key]
        if not line.has_from(first) or pool.is_spot:
            return
        for place in line.take(pool.spec.affinity, pool.shortfall):
            if place >= first:
                yield _requested(spot[place - first], key)


def is_short(state: State, offering: OfferingKey) -> bool:
    """Whether spot Nodes there may have to give way: some have machines, and others need them."""
    if not len(state.supply(offering).spot):
        return False
    first = next(iter(state.waiting.get(offering, Ranking())), None)
    waits = first is not None and not state.pools[first].is_spot
    return waits or state.outstanding(offering) > 0


def _coming(state: State, offering: OfferingKey) -> Iterator[Machine]:
    """The machines that are free, in their order, then those that come back for certain."""
    for key in state.inventory.free.get(offering, ()):
        yield _machine(state, key)
    supply = state.supply(offering)
    returning = set(supply.returning)
    for pool in (state.pools[key] for key in supply.spot):
        if pool.stage is not Stage.ACTIVE:
            # Of so many Nodes, the deletion may not be requested all in one step.
            returning.update(machine_key(pool.zone, node) for node, _ in pool.members)
    for key in sorted(returning):
        yield _machine(state, key)


def _machine(state: State, key: MachineKey) -> Machine:
    return state.inventory.machines[key]


def _requested(victim: Victim, beneficiary: PoolKey | None) -> NodePreemptionRequested:
    pool = victim.pool
    same = beneficiary is not None and pool_path(beneficiary)[0] == pool_path(pool.key)[0]
    return NodePreemptionRequested(
        **pool_fields(pool.key),
        node=victim.node,
        zone=pool.zone,
        assignment=victim.member.assignment,
        cause="Reclaimed" if beneficiary is None else "DefaultPoolShort",
        beneficiary=beneficiary if beneficiary is not None and same else "",
    )


class _Line:
    """Machines in an order, of which each is taken once; a place is a number from 0."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self._machines = machines
        self._bits = (1 << len(machines)) - 1
        self._index = LabelIndex(len(machines), self._values)
        self._labels: list[dict[str, str]] = []

    @property
    def left(self) -> int:
        """How many are not taken."""
        return self._bits.bit_count()

    def has_from(self, place: int) -> bool:
        """Whether any at this place or a later one is not taken."""
        return self._bits >> place > 0

    def take(self, affinity: Affinity | None, count: int) -> list[int]:
        """The places of at most so many that satisfy an affinity, which are taken then."""
        fitting = self._bits if affinity is None else self._index.accepted(affinity) & self._bits
        taken: list[int] = []
        while fitting and len(taken) < count:
            first = fitting & -fitting
            taken.append(first.bit_length() - 1)
            self._bits ^= first
            fitting ^= first
        return taken

    def _values(self, label: str) -> list[str | None]:
        if not self._labels:
            self._labels = [labels_of(machine) for machine in self._machines]
        return [labels.get(label) for labels in self._labels]
