"""The conditions of a NodePool: the reasons of each, and what a new verdict changes.

Types, reasons and their order are those of
https://docs.coreweave.com/products/cks/reference/node-pool, which lists a status for each reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal

from nodepool.contract.moments import rfc3339
from nodepool.contract.words import Word

ConditionStatus = Literal["True", "False", "Unknown"]


class Validated(Word):
    """Is the NodePool's configuration valid?"""

    VALID = "Valid"
    INVALID = "Invalid"
    INTERNAL_ERROR = "InternalError"


class Quota(Word):
    """May the organisation have so many Nodes?"""

    UNDER = "Under"
    OVER = "Over"
    NOT_SET = "NotSet"
    INTERNAL_ERROR = "InternalError"


class Capacity(Word):
    """Are there as many machines as the NodePool still wants?

    The NodePool wants as many Nodes as quota grants, at most its target. Partial: only some of the
    machines can be had. A reason that ends in NodeAffinity: without the affinity more could be had.
    `reason_of` in `capacity.supply` decides.
    """

    SUFFICIENT = "Sufficient"
    PARTIAL = "Partial"
    NONE_AVAILABLE = "NoneAvailable"
    NONE_AVAILABLE_NODE_AFFINITY = "NoneAvailableNodeAffinity"
    PARTIAL_NODE_AFFINITY = "PartialNodeAffinity"
    INTERNAL_ERROR = "InternalError"


class AtTarget(Word):
    """Has the NodePool as many Nodes as it wants?"""

    TARGET_MET = "TargetMet"
    PENDING_DELETE = "PendingDelete"
    OVER_TARGET = "OverTarget"
    UNDER_TARGET = "UnderTarget"
    INTERNAL_ERROR = "InternalError"


class NodesRemoved(Word):
    """Are the Nodes of a NodePool that is being deleted gone?"""

    COMPLETE = "Complete"
    PENDING = "Pending"
    INTERNAL_ERROR = "InternalError"


class Accepted(Word):
    """Deprecated, replaced by Validated; NoQuota means that Quota is False."""

    ACCEPTED = "Accepted"
    INVALID = "Invalid"
    POLICY_VIOLATION = "PolicyViolation"
    NO_QUOTA = "NoQuota"
    INTERNAL_ERROR = "InternalError"


class Allocated(Word):
    """Deprecated, replaced by AtTarget."""

    COMPLETE = "Complete"
    PENDING_DELETE = "PendingDelete"
    OVER_TARGET = "OverTarget"
    UNDER_TARGET = "UnderTarget"
    INTERNAL_ERROR = "InternalError"
    UNKNOWN = "Unknown"


class SufficientCapacity(Word):
    """Deprecated, replaced by Capacity."""

    SUFFICIENT = "Sufficient"
    PARTIAL = "Partial"
    NONE_AVAILABLE = "NoneAvailable"
    INTERNAL_ERROR = "InternalError"


Reason = (
    Validated
    | Quota
    | Capacity
    | AtTarget
    | NodesRemoved
    | Accepted
    | Allocated
    | SufficientCapacity
)

ORDER: tuple[type[Reason], ...] = (
    Validated,
    Capacity,
    Quota,
    AtTarget,
    NodesRemoved,
    Accepted,
    Allocated,
    SufficientCapacity,
)
"""The condition types in the order in which a NodePool shows them, deprecated ones last."""

_TRUE = frozenset(
    (
        (Validated, "Valid"),
        (Quota, "Under"),
        (Capacity, "Sufficient"),
        (AtTarget, "TargetMet"),
        (NodesRemoved, "Complete"),
        (Accepted, "Accepted"),
        (Allocated, "Complete"),
        (SufficientCapacity, "Sufficient"),
    )
)
_UNKNOWN = frozenset(("InternalError", "Unknown"))

HEALTHY: Mapping[Reason, str] = {
    Validated.VALID: "NodePool configuration is valid.",
    Capacity.SUFFICIENT: "Sufficient capacity available for the requested instance type.",
    Quota.UNDER: "NodePool is within instance type quota.",
    AtTarget.TARGET_MET: "NodePool has reached its target node count.",
}
"""The messages of a healthy NodePool, exactly as the product's documentation shows them."""


def status_of(reason: Reason) -> ConditionStatus:
    """Return the status that belongs to a reason."""
    if (type(reason), reason.value) in _TRUE:
        return "True"
    return "Unknown" if reason.value in _UNKNOWN else "False"


class Look(Word):
    """What a reason tells people; each program that shows reasons gives each look a colour."""

    WELL = "well"
    UNDER_WAY = "under way"
    SHORT = "short"
    BLOCKED = "blocked"
    WRONG = "wrong"
    UNKNOWN = "unknown"


_BY_STATUS: Final = {"True": Look.WELL, "False": Look.BLOCKED, "Unknown": Look.UNKNOWN}
_LOOKS: Mapping[Reason, Look] = {
    Validated.INVALID: Look.WRONG,
    Capacity.PARTIAL: Look.SHORT,
    Capacity.PARTIAL_NODE_AFFINITY: Look.SHORT,
    AtTarget.PENDING_DELETE: Look.UNDER_WAY,
    AtTarget.OVER_TARGET: Look.SHORT,
    AtTarget.UNDER_TARGET: Look.SHORT,
    NodesRemoved.PENDING: Look.UNDER_WAY,
}
"""The looks of the reasons that do not look as their status does."""
LOOKS: Mapping[str, Look] = {
    reason.value: _LOOKS.get(reason, _BY_STATUS[status_of(reason)])
    for kind in (Validated, Quota, Capacity, AtTarget, NodesRemoved)
    for reason in kind
}
"""The look of each reason of the conditions that are not deprecated."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of an object.

    since: when its status changed last, its `lastTransitionTime`.
    generation: the generation of the object that it is about, its `observedGeneration`.
    position: where in the log it changed last, its `logPosition`; 0 where that is not known.
    """

    type: str
    status: ConditionStatus
    reason: str
    message: str
    since: datetime
    generation: int
    position: int = 0

    def document(self) -> dict[str, object]:
        """Return the condition as a Kubernetes client sees it."""
        known = {"logPosition": self.position} if self.position else {}
        return {
            "lastTransitionTime": rfc3339(self.since),
            **known,
            "message": self.message,
            "observedGeneration": self.generation,
            "reason": self.reason,
            "status": self.status,
            "type": self.type,
        }


def change_condition(
    before: Condition | None,
    reason: Reason,
    message: str,
    generation: int,
    now: datetime,
    position: int = 0,
) -> Condition:
    """Return the condition after a verdict; `before` itself if the verdict is the same.

    The transition time changes with the status, not with the reason or the message; the position
    changes with any of them.
    """
    status = status_of(reason)
    since = before.since if before is not None and before.status == status else now
    content = (type(reason).__name__, status, reason.value, message, since, generation)
    if before is not None and Condition(*content, before.position) == before:
        return before
    return Condition(*content, position)


def compute_accepted(
    before: Condition | None,
    conditions: Mapping[str, Condition],
    now: datetime,
    *,
    refused: bool,
) -> Condition | None:
    """Return the deprecated Accepted after other conditions changed; `before` if it is unchanged.

    Accepted follows two conditions, and neither tells when Accepted changed last. None before the
    NodePool was validated. `refused`: whether the NodePool is invalid because its zone does not
    offer its instance type; Accepted calls that a policy violation.
    """
    validated, quota = conditions.get("Validated"), conditions.get("Quota")
    if validated is None:
        return None
    source, reason = validated, Accepted.ACCEPTED
    if validated.reason == Validated.INTERNAL_ERROR:
        reason = Accepted.INTERNAL_ERROR
    elif validated.reason == Validated.INVALID:
        reason = Accepted.POLICY_VIOLATION if refused else Accepted.INVALID
    elif quota is not None and quota.status == "False":
        source, reason = quota, Accepted.NO_QUOTA
    return change_condition(before, reason, source.message, source.generation, now, source.position)


def list_deprecated(
    conditions: Mapping[str, Condition], accepted: Condition | None
) -> tuple[Condition, ...]:
    """Return Accepted as stored, and Allocated and SufficientCapacity from their successors."""
    derived = (
        accepted,
        _derive_allocated(conditions.get("AtTarget")),
        _sufficient(conditions.get("Capacity")),
    )
    return tuple(condition for condition in derived if condition is not None)


def _derive_condition(source: Condition, reason: Reason) -> Condition:
    return replace(
        source, type=type(reason).__name__, status=status_of(reason), reason=reason.value
    )


def _derive_allocated(at_target: Condition | None) -> Condition | None:
    if at_target is None:
        return None
    if at_target.reason == AtTarget.TARGET_MET:
        return _derive_condition(at_target, Allocated.COMPLETE)
    return _derive_condition(at_target, Allocated(at_target.reason))


def _sufficient(capacity: Condition | None) -> Condition | None:
    if capacity is None:
        return None
    return _derive_condition(
        capacity, SufficientCapacity(capacity.reason.removesuffix("NodeAffinity"))
    )
