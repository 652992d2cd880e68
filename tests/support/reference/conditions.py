"""Conditions as a second specification: what each NodePool has to show once all is quiet.

Every number in a message is that of now. A transition time moves with the status, and only forward.

From the log: nothing but what the models of quota, capacity and Nodes take from it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from nodepool.contract.conditions import HEALTHY, AtTarget, Quota, Validated
from nodepool.contract.events import (
    AllocationFailed,
    CWNodePoolNodesRemoveError,
    NodePoolUpdateFailed,
    NodeUpdateFailed,
)
from nodepool.contract.model import NodePhase
from nodepool.engine.world import World
from nodepool.explanation.documents import target_of
from nodepool.service import Context
from support.audit.facts import Facts, Pool, Stay
from support.documents import documents_of
from support.reference.capacity import CapacityModel
from support.reference.history import History
from support.reference.pools import Desired, Expected
from support.reference.quota import QuotaModel

Shown = Mapping[str, Any]
"""An object of the read model."""
STATUS = {"Valid": "True", "Under": "True", "Sufficient": "True", "TargetMet": "True"}
"""The status of each reason that is not False."""


def faults(
    world: World,
    expected: Expected,
    quota: QuotaModel,
    capacity: CapacityModel,
    facts: Facts,
) -> Iterator[str]:
    """What the NodePools of the read model show that they should not."""
    shown: Mapping[str, Shown] = documents_of(world, "nodepools")
    for key, pool in expected.pools.items():
        if pool.deleting:
            yield f"{key} is not deleted yet"
            continue
        document = shown.get(key)
        if document is None:
            yield f"{key} is not in the read model"
            continue
        yield from _object(pool, document)
        conditions = {each["type"]: each for each in document["status"]["conditions"]}
        existing = facts.pool(key)
        stays = facts.stays_in(existing) if existing is not None else ()
        current = sum(stay.phase != NodePhase.BOOTING and not stay.is_lent for stay in stays)
        wanted = dict(_conditions(pool, quota, capacity, existing))
        granted = document["status"]["grantedNodes"]
        most = _most(pool, quota, existing)
        wanted["AtTarget"] = _at_target(current, granted, most, pool, conditions)
        yield from _named(pool, conditions["AtTarget"], stays)
        for kind, (reason, message) in wanted.items():
            yield from _condition(f"{key} {kind}", pool, conditions.get(kind), reason, message)
        yield from _progress(pool, document, conditions)
        yield from _place(pool, document, conditions)
        absent = {"NodesRemoved"} if pool.was_valid else {"NodesRemoved", "Quota", "Capacity"}
        yield from _unchecked(pool, conditions)
        for kind in absent & set(conditions):
            yield f"{key} shows the condition {kind}: {conditions[kind]['message']}"


def _unchecked(pool: Desired, conditions: Mapping[str, Shown]) -> Iterator[str]:
    """Yield checks of quota and capacity that an invalid NodePool shows of its generation."""
    for kind in ("Quota", "Capacity"):
        shown = conditions.get(kind)
        if pool.fault and shown and shown["observedGeneration"] == pool.generation:
            yield f"{pool.key} is invalid, and {kind} is {shown['reason']} of this generation"


def _named(pool: Desired, at_target: Shown, stays: Iterable[Stay]) -> Iterator[str]:
    """Yield the Nodes that AtTarget names, though they are reserved for the control plane."""
    for stay in stays:
        _, _, name = stay.machine.rpartition("/")
        if stay.is_lent and name in at_target["message"]:
            yield f"{pool.key} AtTarget names {name}, which is reserved for the control plane"


def _progress(pool: Desired, document: Shown, conditions: Mapping[str, Shown]) -> Iterator[str]:
    """What kstatus is shown: Stalled if a check has failed, else Reconciling on the way.

    At its target, a NodePool shows neither, unless it is invalid. Above its target, it loses Nodes
    whatever quota and capacity say. Up to its grant, it needs no limit.
    """
    newest = [each for each in conditions.values() if each["observedGeneration"] == pool.generation]
    others = [each for each in newest if each["type"] not in _OF_KSTATUS]
    is_met = conditions["AtTarget"]["status"] == "True"
    wanted = set() if is_met else {"Reconciling"}
    if conditions["AtTarget"]["reason"] == "OverTarget":
        others = [each for each in others if each["type"] not in ("Quota", "Capacity")]
    if document["status"]["grantedNodes"] >= pool.spec.target:
        others = [each for each in others if each["reason"] not in ("NotSet", "Over")]
    if any(each["reason"] in _FAILED - (_MISSED if is_met else set()) for each in others):
        wanted = {"Stalled"}
    if _OF_KSTATUS & set(conditions) != wanted:
        yield f"{pool.key} shows {sorted(_OF_KSTATUS & set(conditions))}, not {sorted(wanted)}"
    if (observed := document["status"].get("observedGeneration")) != pool.generation:
        yield f"{pool.key} shows observedGeneration {observed}, not {pool.generation}"


def _place(pool: Desired, document: Shown, conditions: Mapping[str, Shown]) -> Iterator[str]:
    """Yield a wrong place in the queue: only a valid NodePool that lacks machines has a place."""
    is_short = not pool.fault and conditions.get("Capacity", {}).get("status") == "False"
    shown = document["status"].get("queuePosition")
    if (shown is not None) is not is_short:
        yield f"{pool.key} shows the position {shown} in the queue for machines"


_OF_KSTATUS: Final = {"Reconciling", "Stalled"}
_FAILED: Final = frozenset({"Invalid", "Over", "NotSet", "InternalError"})
_MISSED: Final = frozenset({"NotSet", "InternalError"})
"""The failures that keep a NodePool from nothing once it is at its target."""


def _object(pool: Desired, document: Shown) -> Iterator[str]:
    metadata = document["metadata"]
    shown = (metadata["generation"], target_of(document), metadata.get("labels", {}))
    wanted = (pool.generation, pool.spec.target, pool.labels)
    if shown != wanted:
        yield f"{pool.key} shows generation, target and labels {shown}, not {wanted}"


def _conditions(
    pool: Desired, quota: QuotaModel, capacity: CapacityModel, facts: Pool | None
) -> Iterator[tuple[str, tuple[str, str]]]:
    """Reason and message of each condition; those of an invalid NodePool may be old ones."""
    fault = pool.fault
    valid = Validated.INVALID if fault else Validated.VALID
    yield "Validated", (valid.value, fault or HEALTHY[Validated.VALID])
    if fault or facts is None:
        return
    part, demand = quota.parts[facts.uid], capacity.demands[facts.uid]
    verdict, message = quota.reason(part), quota.message(part)
    yield "Quota", (verdict.value, message)
    available = capacity.available(demand)
    free = capacity.available(demand, fitting=False)
    reason = capacity.reason(demand, available, free)
    yield "Capacity", (reason.value, capacity.message(demand, reason, available))


def _most(pool: Desired, quota: QuotaModel, existing: Pool | None) -> int:
    """How many Nodes it keeps: no more than its grant if the control plane gave back others."""
    part = quota.parts.get(existing.uid) if existing is not None else None
    is_over = part is not None and part.reason in (Quota.OVER, Quota.NOT_SET)
    return part.grant if part and is_over and part.given_up and not pool.fault else pool.spec.target


def _at_target(
    current: int, granted: int, most: int, pool: Desired, conditions: Mapping[str, Shown]
) -> tuple[str, str]:
    """AtTarget repeats the checks of its newest generation that keep a NodePool from its target.

    Quota keeps it from no Node up to its grant. What could not be determined comes last.
    The message for too many Nodes says what it waits for, and is not laid down here.

    most: how many Nodes it keeps at most.
    """
    target = pool.spec.target
    if current > min(target, most):
        return AtTarget.OVER_TARGET.value, ""
    if current == target:
        return AtTarget.TARGET_MET.value, HEALTHY[AtTarget.TARGET_MET]
    checks = (conditions.get(kind) for kind in ("Validated", "Quota", "Capacity"))
    newest = [each for each in checks if each and each["observedGeneration"] == pool.generation]
    failing = [each for each in newest if STATUS.get(each["reason"]) != "True"]
    if granted >= target:
        failing = [each for each in failing if each["reason"] not in ("NotSet", "Over")]
    failing.sort(key=lambda each: each["reason"] == "InternalError")
    blocks = [
        f"; {each['type']} is {each['reason']}: {each['message'].removesuffix('.')}"
        for each in failing
    ]
    count = f"{target} Node{'' if target == 1 else 's'}"
    text = f"NodePool has {current} of {count}{''.join(blocks)}"
    return AtTarget.UNDER_TARGET.value, text if text.endswith("?") else f"{text}."


def _condition(
    name: str, pool: Desired, shown: Shown | None, reason: str, message: str
) -> Iterator[str]:
    if shown is None:
        yield f"{name} is missing, and has to be {reason}"
        return
    if shown["message"].startswith(message):
        message = shown["message"]  # It may go on with what is not laid down here.
    wanted = (STATUS.get(reason, "False"), reason, message, pool.generation)
    actual = (shown["status"], shown["reason"], shown["message"], shown["observedGeneration"])
    if actual != wanted:
        yield f"{name} is {actual}, and has to be {wanted}"


def transitions(world: World, history: History) -> Iterator[str]:
    """Transition times that moved without the status, or back, deprecated conditions included.

    Also failed decisions about Nodes that are not shown, or no longer though none has succeeded,
    and deletions that could not be ended, which show so until the NodePool is gone.
    """
    (service,) = (each for each in world.services if each.projection is not None)
    state, projection = service.initial, service.projection
    assert projection is not None
    render = projection.render_deprecated
    assert render is not None
    before: dict[str, Mapping[str, Shown]] = {}
    kept: set[str] = set()
    for stored in history.messages:
        name = type(stored.message).__name__
        if name not in service.inputs or name == "Wake" or stored.speaker == "cmd":
            continue
        state = service.evolve(
            state, stored.message, Context(stored.position, stored.time, stored.id)
        )
        for bucket, key in projection.touched(state, stored.message):
            item = projection.get(state, bucket, key) if bucket == "nodepools" else None
            if item is None:
                before.pop(key, None)
                continue
            document: Shown = render(item)
            after = {each["type"]: each for each in document["status"]["conditions"]}
            yield from _moved(f"{key} at {stored.position}", before.get(key, {}), after)
            if document["metadata"]["uid"] == _failed_pool(stored.message):
                yield from _unshown(f"{key} after {name}", after)
            if name == NodePoolUpdateFailed.__name__ and "NodesRemoved" in after:
                kept.add(document["metadata"]["uid"])
            if document["metadata"]["uid"] in kept:
                yield from _undeleted(f"{key} after {name}", after)
            if name not in _ENDS_OF_FAILURES:
                yield from _forgotten(f"{key} after {name}", before.get(key, {}), after)
            before[key] = after


_ENDS_OF_FAILURES: Final = frozenset(
    {
        "AllocationRecovered",
        "NodeRemovalRecovered",
        "NodePoolValidated",
        "NodePoolDeleting",
        "CWNodePoolNodesRemoved",
    }
)
"""The events after which a failed decision about Nodes need not be shown any more."""


def _failed_pool(message: object) -> str:
    """Return the uid of the NodePool whose Nodes a service could not decide about; "" for none."""
    match message:
        case (
            AllocationFailed(uid=uid)
            | CWNodePoolNodesRemoveError(uid=uid, node="")
            | NodeUpdateFailed(uid=uid)
        ):
            return uid
        case _:
            return ""


def _unshown(name: str, after: Mapping[str, Shown]) -> Iterator[str]:
    shown = {each["reason"] for kind, each in after.items() if kind in ("AtTarget", "NodesRemoved")}
    if not shown & {"InternalError", "Complete"}:
        yield f"{name}: the failed decision about Nodes is not shown, but {sorted(shown)}"


def _undeleted(name: str, after: Mapping[str, Shown]) -> Iterator[str]:
    shown = after["NodesRemoved"]["reason"]
    if shown != "InternalError":
        yield f"{name}: the deletion could not be ended, and NodesRemoved is {shown}"


def _forgotten(name: str, before: Mapping[str, Shown], after: Mapping[str, Shown]) -> Iterator[str]:
    for kind in {"AtTarget", "NodesRemoved"} & set(before):
        shown = after[kind]["reason"] if kind in after else "absent"
        if before[kind]["reason"] == "InternalError" != shown:
            yield f"{name}: {kind} was InternalError and is {shown}, though nothing has succeeded"


def _moved(name: str, before: Mapping[str, Shown], after: Mapping[str, Shown]) -> Iterator[str]:
    for kind in set(before) & set(after):
        old, new = before[kind], after[kind]
        moved = old["lastTransitionTime"] != new["lastTransitionTime"]
        back = new["lastTransitionTime"] < old["lastTransitionTime"]
        if back or (moved and old["status"] == new["status"]):
            yield f"{name}: the transition time of {kind} moves from {old} to {new}"
