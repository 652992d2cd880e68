"""Which machines NodePools hold, and how that changes what each NodePool waits for."""

from dataclasses import replace
from typing import TYPE_CHECKING

from immutables import Map

from capacity.demand import stored, supply_changed
from capacity.pool import Pool
from nodepool.contract import events as on
from nodepool.contract.keys import MachineKey
from nodepool.placement.machines import RECLAIMED, TRIAGE, Inventory, Machine
from nodepool.placement.racks import counted
from nodepool.placement.ranking import Ranking
from nodepool.placement.waits import exchanged
from nodepool.service import Context

if TYPE_CHECKING:
    from capacity.state import State


def assigned(state: "State", event: on.CWNodeAssigned) -> "State":
    """Return the state with another Node of a NodePool, which fills a position."""
    pool, key = state.pool(event.key, event.uid), event.machine_key
    waiting = state.offering(pool.offering).waiting if pool is not None else Ranking()
    position = waiting.consumed(event.key)
    since = pool.wait.first if pool is not None else None
    since = since if position is None else position[1]
    inventory = state.inventory.assign(key, event.key, event.assignment, since)
    state = replace(state, inventory=inventory)
    if pool is not None and position is not None and position[0] != pool.key:
        owner = state.pools[position[0]]
        wait, other = exchanged(pool.wait, owner.wait, position[1])
        pool = replace(pool, wait=wait)
        state = stored(state, replace(owner, wait=other))
    elif pool is not None and since is not None:
        pool = replace(pool, wait=pool.wait.without_position(since))
    return _held(state, pool, key, 1)


def left(
    state: "State", event: on.CWNodeDeleted | on.CWNodeRegistrationFailed, context: Context
) -> "State":
    """Return the state without a Node, whose NodePool waits for another one from now on.

    The failure of a machine that never joined changes no position.
    """
    key, pool = event.machine_key, state.pool(event.key, event.uid)
    failed = isinstance(event, on.CWNodeRegistrationFailed)
    since = state.inventory.machines[key].since if failed else None
    state = stocked(state, key, state.inventory.depart(event))
    state = _to_triage(giving_way(state, key, gives_way=False), key, is_broken=False)
    if key in state.reserved:
        state = replace(state, reserved=state.reserved.delete(key))  # No NodePool held it.
        return supply_changed(state, state.inventory.machines[key].offering)
    if pool is not None:
        wait = pool.wait.after_failed_boot(pool.held - 1, since, context.time)
        pool = replace(pool, wait=wait)
    return _held(state, pool, key, -1)


def cordon_changed(state: "State", event: on.CWNodeCordoned | on.CWNodeUncordoned) -> "State":
    """Return the state in which the machine of a Node will go to triage, or will not."""
    key = event.machine_key
    machine = state.inventory.machines.get(key)
    if machine is None or machine.holder != event.key or machine.assignment != event.assignment:
        return state
    is_broken = isinstance(event, on.CWNodeCordoned) and event.triage
    return _to_triage(state, key, is_broken=is_broken)


def _to_triage(state: "State", key: MachineKey, *, is_broken: bool) -> "State":
    if is_broken is (key in state.to_triage):
        return state
    known = state.to_triage
    known = known.set(key, True) if is_broken else known.delete(key)
    offering = state.inventory.machines[key].offering
    return supply_changed(replace(state, to_triage=known), offering)


def reservation_changed(
    state: "State", event: on.NodeReservationChanged, context: Context
) -> "State":
    """Return the state in which a NodePool holds a Node no more, or holds it again."""
    key, pool = event.machine_key, state.pools.get(event.key)
    machine = state.inventory.machines.get(key)
    is_current = machine is not None and machine.assignment == event.assignment and machine.holder
    if not is_current or event.usable is (key not in state.reserved):
        return state
    reserved, change = state.reserved, 1 if event.usable else -1
    reserved = reserved.delete(key) if event.usable else reserved.set(key, True)
    state = replace(state, reserved=reserved)
    if pool is not None:
        held, wait = pool.held + change, pool.wait
        wait = wait.after_gain(held) if event.usable else wait.after_loss(held, context.time)
        pool = replace(pool, wait=wait)
    return _held(state, pool, key, change)


def _held(state: "State", pool: Pool | None, key: MachineKey, change: int) -> "State":
    machine = state.inventory.machines[key]
    if pool is not None:
        assert pool.held + change >= 0, f"{pool.key} holds fewer than no Nodes"
        domains = pool.domains
        if pool.rack_size:
            domains = counted(domains, machine.domain, change)
        state = stored(state, replace(pool, held=pool.held + change, domains=domains))
    return supply_changed(state, machine.offering)


def stocked(state: "State", key: MachineKey, inventory: Inventory) -> "State":
    """Return the state with this inventory, in which one machine may have come or gone."""
    before, after = state.inventory.machines.get(key), inventory.machines.get(key)
    state = replace(state, inventory=inventory)
    change = _serves(after) - _serves(before)
    if after is None or not change:
        return state
    count = state.healthy.get(after.offering, 0) + change
    return replace(state, healthy=state.healthy.set(after.offering, count))


def _serves(machine: Machine | None) -> bool:
    return machine is not None and machine.holder not in (TRIAGE, RECLAIMED)


def giving_way(state: "State", key: MachineKey, *, gives_way: bool) -> "State":
    """Return the state in which the Node of a machine gives way, or no longer does."""
    machine = state.inventory.machines.get(key)
    if machine is None:
        return state
    before: Map[MachineKey, bool] = state.giving_way.get(machine.offering, Map())
    if gives_way is (key in before):
        return state
    after = before.set(key, True) if gives_way else before.delete(key)
    offerings = state.giving_way
    offerings = (
        offerings.set(machine.offering, after) if after else offerings.delete(machine.offering)
    )
    return supply_changed(replace(state, giving_way=offerings), machine.offering)
