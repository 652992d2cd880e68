"""Rules for capacity and assignment: machines that the affinity accepts, within grants.

Which NodePool is served first is a rule of the reference model.
"""

from collections.abc import Iterator

from nodepool.contract.affinity import machine_labels
from nodepool.contract.catalog import INSTANCE_TYPES, ZONES
from nodepool.contract.conditions import Validated
from nodepool.contract.events import CapacityChecked, CapacityCheckFailed, CWNodeAssigned
from nodepool.contract.messages import Message
from nodepool.contract.model import NodePoolSpec
from support.affinity import matches
from support.audit.facts import Facts, Machine, Origin, Pool, Stay, Violation
from support.audit.quota import check_limit


def check(facts: Facts, message: Message, origin: Origin) -> None:
    """Checks and notes an event about capacity or an assignment."""
    match message:
        case CapacityChecked():
            facts.pools[message.uid].checks.add(origin.position, message)
        case CapacityCheckFailed():
            pool = facts.pools.get(message.uid)
            if pool is not None:
                pool.checks.add(origin.position, None)
        case CWNodeAssigned():
            _assigned(facts, message, origin)


def fits(spec: NodePoolSpec, machine: Machine) -> bool:
    """Whether a machine satisfies a spec's node affinity."""
    kind, zone = INSTANCE_TYPES[machine.instance_type], ZONES[machine.zone]
    return matches(spec.affinity, {**machine_labels(kind, zone), **machine.labels})


def _assigned(facts: Facts, message: CWNodeAssigned, origin: Origin) -> None:
    pool, name = facts.pools[message.uid], message.machine_key
    machine = facts.machines[name]
    if pool.checks.as_of(origin.cause) is None:
        raise Violation(f"{pool.key} is given a Node before its capacity was checked")
    spec = _granted_spec(pool, origin.cause)
    if not fits(spec, machine):
        raise Violation(f"{pool.key} is given {name}, which its affinity does not accept")
    if not machine.was_free(origin.cause):
        raise Violation(f"{pool.key} is given {name}, which was known to be out of service")
    before = facts.reserved(pool.ledger, origin.cause)
    machine.hold(pool.uid, origin.position)
    machine.assignment, machine.unwiped = message.assignment, machine.wipes
    pool.assignments.append(origin.position)
    now, number = facts.times[origin.position], message.assignment
    stay = Stay(pool, name, now, number=number, batch=origin.cause)
    facts.stays[message.assignment] = stay
    check_limit(facts, pool, before, origin, f"{pool.key} is given {name}")


def _granted_spec(pool: Pool, cause: int) -> NodePoolSpec:
    """The spec that a Node is given for, which must be valid and granted."""
    version, grant = pool.versions.as_of(cause), pool.grants.as_of(cause)
    if version is None or version.reason is not Validated.VALID:
        raise Violation(f"{pool.key} is given a Node without a valid spec")
    if pool.is_deleting(cause):
        raise Violation(f"{pool.key} is given a Node while it is being deleted")
    if grant is None or grant.generation != version.generation:
        raise Violation(f"{pool.key} is given a Node for a generation that was not granted")
    held = pool.held_as_of(cause)
    if held >= grant.granted:
        raise Violation(f"{pool.key} is given a Node and holds {held} of {grant.granted}")
    return version.spec


def claimed(pool: Pool, cause: int) -> Iterator[tuple[NodePoolSpec, int]]:
    """The spec of a NodePool and how many machines are its own as they come free; nothing for none.

    As long as what it wants is being checked, that is what its last checks allow.
    """
    version, grant = pool.versions.as_of(cause), pool.grants.as_of(cause)
    capacity = pool.checks.as_of(cause)
    if version is None or grant is None or capacity is None or pool.is_deleting(cause):
        return
    allowed = min(grant.granted, capacity.granted, version.spec.target)
    missing = allowed - pool.held_as_of(cause)
    if version.reason is Validated.VALID and missing > 0:
        yield version.spec, missing
