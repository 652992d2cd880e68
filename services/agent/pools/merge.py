"""Merges a NodePool three ways: its object, the bus, and the last agreement of both.

People in the cluster and commands on the bus both change a NodePool. A change in the cluster
becomes a command. If both sides have changed the same field, the bus holds: the object is set back,
and an Event says what is lost. If they have changed different fields, the object first follows the
bus, and then the change in the cluster is sent; if the mixture is no valid spec, the bus holds in
all fields. A field is a top-level field of the spec, or all labels together. `merge` decides, and
`agent.pools.actions` makes actions of the decision.
"""

from enum import Enum, auto
from typing import Final, NamedTuple

from agent.actions import Attempt
from agent.pools.agreement import Differences, differences, digests
from agent.pools.objects import SpecFault, WantedPool, read_spec, take_fields
from agent.pools.sides import NO_FIELDS, Sides
from agent.reading import Document
from nodepool.contract.model import FINALIZER

ON_BUS: Final = "it was changed on the bus as well, and the log decides"
GONE: Final = ("NotFound", "Conflict")
"""The reasons of a refused deletion that mean that no NodePool has its uid any more."""


class Outcome(Enum):
    """What a merge ends with."""

    WAIT = auto()
    """Something has to happen first: an outcome, a newer read model, or what people do."""
    AGREE = auto()
    """Both sides are equal, and the object says so."""
    SEND = auto()
    """The cluster has changed the NodePool, and the bus gets a command."""
    FOLLOW = auto()
    """The bus has changed the NodePool, and the object follows."""
    SET_BACK = auto()
    """A change in the cluster loses, or is refused: an Event or the status says so."""


class Merge(NamedTuple):
    """A decision.

    fields: the fields of the object that are set to what the bus has.
    lost: the fields whose value in the cluster is lost, and why.
    """

    outcome: Outcome
    fields: frozenset[str] = NO_FIELDS
    lost: frozenset[str] = NO_FIELDS
    why: str = ""


def merge(sides: Sides) -> Merge:  # noqa: C901, PLR0912  # It is to be read from its top.
    """Return which side of a NodePool has to change next, and in which fields."""
    bus, cluster, refusal = sides.bus, sides.cluster, sides.refusal
    if sides.is_awaited:
        return Merge(Outcome.WAIT)
    if not sides.has_object:  # At most the bus has it.
        if bus is None or bus.deleting or sides.facts.is_leaving:
            return Merge(Outcome.WAIT)
        # A NodePool of another uid has never had the object that was deleted.
        was_removed = sides.agreed_uid == bus.uid and not sides.is_deletion_sent
        return Merge(Outcome.SEND if was_removed else Outcome.FOLLOW)
    if cluster.deleting:
        return _merge_deleted(sides)
    if bus is None:  # The cluster alone has it.
        if sides.was_deleted:
            return Merge(Outcome.FOLLOW)
        if sides.is_hidden:
            return Merge(Outcome.WAIT)
        if isinstance(sides.spec, SpecFault):
            return Merge(Outcome.SET_BACK, why=str(sides.spec))
        return Merge(Outcome.SEND) if refusal is None else _build_set_back(refusal)
    if bus.deleting:
        # An object that was never shared with this log is another NodePool, and waits.
        return Merge(Outcome.FOLLOW if sides.agreed_uid else Outcome.WAIT)
    if sides.is_behind:  # Both sides have it.
        return Merge(Outcome.WAIT)
    if isinstance(sides.spec, SpecFault):
        names = frozenset({*cluster.spec, *bus.spec})
        return Merge(Outcome.SET_BACK, names, why=str(sides.spec))
    diff = differences(sides.base, digests(sides.bus_fields), digests(sides.cluster_fields))
    if diff.bus or diff.both:
        return _merge_bus(sides, bus, diff)
    if not diff.cluster:
        return Merge(Outcome.AGREE)
    if refusal is None:
        return Merge(Outcome.SEND)
    if refusal.reason == "NotFound" and refusal.field != "cluster":
        return Merge(Outcome.WAIT)  # The bus has deleted it, and the read model will show that.
    return _build_set_back(refusal, diff.cluster)


def _build_set_back(refusal: Attempt, fields: frozenset[str] = NO_FIELDS) -> Merge:
    why = f"{refusal.field}: {refusal.message}".removeprefix(": ")
    return Merge(Outcome.SET_BACK, fields, fields, why)


def _merge_deleted(sides: Sides) -> Merge:
    """Return what the deletion of an object leads to: the bus deletes first, and then it goes."""
    bus, attempt, uid = sides.bus, sides.attempt, sides.agreed_uid
    if FINALIZER not in sides.cluster.finalizers:
        return Merge(Outcome.WAIT)
    if sides.facts.is_leaving:
        return Merge(Outcome.FOLLOW)
    if bus is not None and bus.deleting:
        return Merge(Outcome.WAIT)
    is_another = bus is not None and uid not in ("", bus.uid)
    is_accepted = attempt is not None and attempt.outcome == "accepted"
    is_gone = attempt is not None and attempt.reason in GONE
    is_done = sides.is_deletion_sent and (is_accepted or is_gone)
    if is_another or is_done or sides.was_deleted:
        # If there is a NodePool of its name now, it is another NodePool that was created since.
        return Merge(Outcome.FOLLOW)
    return Merge(Outcome.SEND) if sides.refusal is None else _build_set_back(sides.refusal)


def _merge_bus(sides: Sides, bus: WantedPool, diff: Differences) -> Merge:
    """Return how an object follows the bus in some fields, if people have changed others."""
    names, lost = diff.bus | diff.both, diff.both
    if not _is_whole(take_fields(sides.cluster_fields, bus.spec, names)):
        names, lost = names | diff.cluster, lost | diff.cluster
    # If the bus has another NodePool of the same name, only fields edited by hand are lost.
    if sides.agreement.uid not in ("", bus.uid):
        lost &= sides.edited
    return Merge(Outcome.SET_BACK if lost else Outcome.FOLLOW, names, lost, ON_BUS)


def _is_whole(document: Document) -> bool:
    """Return whether a spec mixed of both sides is one that the API server takes."""
    spec = read_spec({name: value for name, value in document.items() if "." not in name})
    if isinstance(spec, SpecFault):
        return False
    if not spec.autoscaling:
        return True
    least, most = spec.min_nodes, spec.max_nodes
    return least is not None and most is not None and least <= spec.target <= most
