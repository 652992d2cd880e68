"""Which spot Nodes give way to a `default` NodePool that lacks Nodes, or to an operator.

A NodePool of class `spot` may lose its Nodes if the capacity is needed elsewhere; see
https://docs.coreweave.com/platform/capacity-plans/spot-node-pools. Spot Nodes give way only if the
free machines and the machines that come back anyway are not enough. A machine that comes back
anyway counts only if it comes back no later than the machine of a preempted Node would.

Free machines are shared out first. Machines that come back are counted for what is still needed
then, in the order in which NodePools are served. NodePools with a node affinity choose their part
first, since NodePools without an affinity can use any machine. If the machines come back in a
different order, one more Node gives way at that time. The same happens if a leaving Node does not
answer, or breaks while it leaves.

A Node that was asked to give way may stay until its preemption begins: if fewer Nodes are needed,
the last request is taken back first. No request is exchanged for a better request: if the first
preemption began before its request was taken back, one more Node would give way.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from allocator.members import Member
from allocator.pool import Pool, Stage
from allocator.shrink import leaving_next
from allocator.state import State
from nodepool.contract.events import NodePreemptionRequested, NodePreemptionWithdrawn
from nodepool.contract.keys import MachineKey, OfferingKey, PoolKey, machine_key, pool_path
from nodepool.contract.messages import pool_fields
from nodepool.contract.model import RemovalReason
from nodepool.placement.line import Count, Line
from nodepool.placement.plan import Need, choose_returns, meet, needs, pass_over
from nodepool.state.values import replace


class Victim(NamedTuple):
    """A spot Node that may have to give way."""

    pool: Pool
    node: str
    member: Member

    @property
    def org(self) -> str:
        """The organisation of its NodePool."""
        return pool_path(self.pool.key)[0]

    @property
    def machine(self) -> MachineKey:
        """The machine of the Node."""
        return machine_key(self.pool.zone, self.node)


def preempt_nodes(
    state: State,
    offering: OfferingKey,
    taken: Mapping[PoolKey, int],
    failed: dict[PoolKey, str],
    now: datetime,
) -> Iterator[NodePreemptionRequested | NodePreemptionWithdrawn]:
    """Yield the preemptions of spot Nodes for an operator, then for NodePools that are short.

    Before these, take back the requests that nobody needs any more and that are not followed yet.

    taken: how many of the free machines each NodePool takes now.

    A NodePool that fails, or has failed before, is passed over; `failed` then holds the cause.
    """
    if not is_short(state, offering):
        return
    needed, unneeded = match_needs(state, offering, taken, failed, now)
    for key in unneeded:
        yield _withdraw_request(state, key)
    if not needed:
        return
    choice = _Choice(state, victims(state, offering, now))
    for need in needed:
        chosen: list[Victim] = []
        with pass_over(need.beneficiary, failed):
            chosen = choice.take(need)
        for victim in chosen:
            yield _request_preemption(victim, need.beneficiary)


def is_short(state: State, offering: OfferingKey) -> bool:
    """Return whether spot Nodes may have to give way, or were asked to and may stay after all."""
    supply = state.supply(offering)
    if not len(supply.spot):
        return False
    is_needed = state.ranking(offering).has_default or state.stock(offering).outstanding > 0
    return is_needed or len(supply.asked) > 0


def match_needs(
    state: State,
    offering: OfferingKey,
    taken: Mapping[PoolKey, int],
    failed: dict[PoolKey, str],
    now: datetime,
) -> tuple[list[Need], list[MachineKey]]:
    """Return the needs beyond the machines that are free or come anyway, in the order of service.

    Return also the machines of Nodes that were asked to give way, may still stay and are not
    needed; the Node that was asked last is first. While a NodePool fails, return no such machine,
    since nobody knows what the NodePool needs.

    A NodePool that is being checked needs nothing yet, but the machines that come are kept for it.
    A NodePool that fails needs nothing.
    """
    stock = state.stock(offering)
    operator = max(0, stock.outstanding - stock.count)
    every = needs(state.ranking(offering), state.pools, operator, taken)
    found = [need for need in every if need.beneficiary not in failed]
    line: Line = Count(coming_count(state, offering, now))
    asked = state.supply(offering).asked
    if len(asked) or any(need.affinity is not None for need in found):
        line = state.inventory.line_of(tuple(coming(state, offering, now)))
    met = meet(found, line, failed)
    left = [need.without(len(machines)) for need, machines in met]
    lacking = [need for need in left if need.machines and _is_checked(state, need)]
    used = {key for _, machines in met for key in machines}
    return lacking, [] if failed else [key for key in asked if key not in used][::-1]


def _is_checked(state: State, need: Need) -> bool:
    return need.beneficiary is None or state.pools[need.beneficiary].goal is not None


def coming(state: State, offering: OfferingKey, now: datetime) -> Iterator[MachineKey]:
    """Yield the machines that an operator gives back, then the machines that are certain to come.

    The latter are being wiped, or belong to Nodes that leave no later than a preemption would end,
    or to Nodes that are still to be asked to leave. A preempted Node's machine is wiped, too, so a
    wipe that has begun ends earlier. A wipe that fails ends, too; then one more Node gives way.

    The machines of Nodes that were asked to give way and may still stay come last, in the order in
    which they were asked. So the request that was made last is taken back first.
    """
    stock, supply = state.stock(offering), state.supply(offering)
    yield from _returning(state, offering)
    yield from stock.wiping
    leave = _leaving_next(state, offering)
    back = (*supply.returning, *supply.returning_soon(now), *leave)
    yield from sorted(key for key in back if key not in supply.asked)
    yield from (key for key in supply.asked if key in supply.returning)


def coming_count(state: State, offering: OfferingKey, now: datetime) -> int:
    """Return the number of machines that `coming` yields, without a list of these machines."""
    stock, supply = state.stock(offering), state.supply(offering)
    back = len(supply.returning) + len(supply.returning_soon(now))
    returned = len(_returning(state, offering))
    return returned + len(stock.wiping) + back + len(_leaving_next(state, offering))


def _returning(state: State, offering: OfferingKey) -> list[MachineKey]:
    """Return the machines in service that an operator gives back."""
    machines = state.inventory.machines
    return [key for key in choose_returns(state.inventory, offering) if not machines[key].out]


def victims(state: State, offering: OfferingKey, now: datetime) -> Iterator[Victim]:
    """Yield the spot Nodes of an offering that may have to give way, in any order.

    A Node of a deleted NodePool is first asked to leave, so that its preemption warns nobody.
    """
    supply = state.supply(offering)
    leave = _leaving_next(state, offering).union(supply.returning_soon(now))
    for key in supply.spot:
        pool = state.pools[key]
        is_active = pool.stage is Stage.ACTIVE
        for node, member in pool.members:
            is_asked = is_active or member.removal is RemovalReason.POOL_DELETED
            if not (member.may_give_way and is_asked):
                continue
            if not (leave and machine_key(pool.zone, node) in leave):
                yield Victim(pool, node, member)


def _leaving_next(state: State, offering: OfferingKey) -> frozenset[MachineKey]:
    """Return the returning machines of Nodes that are still to be asked to leave."""
    supply = state.supply(offering)
    keys: set[MachineKey] = set()
    for pool in (state.pools[key] for key in supply.shrinking):
        deleting = pool.stage is not Stage.ACTIVE
        removal = RemovalReason.POOL_DELETED if deleting else RemovalReason.SCALE_DOWN
        for node in leaving_next(pool):
            if replace(pool.members[node], removal=removal).returns:
                keys.add(machine_key(pool.zone, node))
    return frozenset(keys.difference(supply.returning))


def _order(victim: Victim) -> tuple[int, int, str]:
    """Return the place of a Node among the Nodes of all organisations that may have to go.

    First Nodes that have not registered; then Nodes that leave already and wait for a Pod to end;
    then idle Nodes before active ones; among equals the newest batch, then the name.
    """
    member = victim.member
    if not member.registered:
        kind = 0
    elif member.removal is not None:
        kind = 1
    else:
        kind = 2 + member.active
    return kind, -member.batch, victim.node


def _order_of_own(victim: Victim) -> tuple[int, tuple[int, int, str]]:
    """Return the place of a Node among the Nodes of its organisation that may have to go."""
    return victim.pool.spec.priority, _order(victim)


def _request_preemption(victim: Victim, beneficiary: PoolKey | None) -> NodePreemptionRequested:
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


def _withdraw_request(state: State, key: MachineKey) -> NodePreemptionWithdrawn:
    machine = state.inventory.machines[key]
    return NodePreemptionWithdrawn(
        **pool_fields(PoolKey(machine.holder)),
        zone=machine.zone,
        node=machine.name,
        assignment=machine.assignment,
    )


class _Choice:
    """The spot Nodes that may have to give way; each Node is chosen at most once.

    The order of all these Nodes decides how many Nodes each organisation gives up. The order within
    an organisation decides which of its Nodes give way. So a priority never moves a preemption to
    another organisation.

    A place in the order of all Nodes belongs to an organisation. If an organisation gives up
    another Node than the Node in the place, both Nodes change places.
    """

    def __init__(self, state: State, found: Iterable[Victim]) -> None:
        spot = sorted(found, key=_order)
        self._line_of = state.inventory.line_of
        self._victims = {victim.machine: victim for victim in spot}
        self._places, self._all = tuple(self._victims), self._line_of(tuple(self._victims))
        self._used: set[MachineKey] = set()
        self._chosen: set[MachineKey] = set()
        own: dict[str, list[MachineKey]] = defaultdict(list)
        for victim in sorted(spot, key=_order_of_own):
            own[victim.org].append(victim.machine)
        self._own = {org: self._line_of(keys) for org, keys in own.items()}

    def take(self, need: Need) -> list[Victim]:
        """Return the Nodes that go for a need; fewer if no others satisfy its affinity."""
        # Without an affinity only the organisations of the places matter, not the Nodes in them.
        if need.affinity is not None and self._used != self._chosen:
            self._change_places()
        keys = self._all.take(need.affinity, need.machines)
        orgs = [self._victims[key].org for key in keys]
        own = {
            org: iter(self._own[org].take(need.affinity, count))
            for org, count in Counter(orgs).items()
        }
        chosen = [next(own[org]) for org in orgs]
        self._used.update(keys)
        self._chosen.update(chosen)
        return [self._victims[key] for key in chosen]

    def _change_places(self) -> None:
        """Let the Nodes that are left fill the places that are left of their organisations."""
        left: dict[str, deque[MachineKey]] = defaultdict(deque)
        for key in self._places:
            if key not in self._chosen:
                left[self._victims[key].org].append(key)
        free = (self._victims[key].org for key in self._places if key not in self._used)
        self._places = tuple(left[org].popleft() for org in free)
        self._all, self._used, self._chosen = self._line_of(self._places), set(), set()
