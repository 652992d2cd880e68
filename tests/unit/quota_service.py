"""The quota service alone, with short forms of the messages in its tests.

Every test looks at the limit of `acme` for H100 Nodes in one zone, unless it says otherwise.
"""

from collections import Counter

from contracts.samples import KIND, ZONE, sample
from nodepool.contract.commands import DeleteQuota, SetQuota
from nodepool.contract.conditions import HEALTHY, Quota, Validated
from nodepool.contract.events import (
    CommandAccepted,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodePoolDeleted,
    CWOverQuota,
    GrantAcknowledged,
    NodePoolDeleting,
    NodePoolValidated,
    NodeReservationChanged,
    QuotaChecked,
    QuotaDeleted,
    QuotaReleased,
    QuotaSet,
    Wake,
)
from nodepool.contract.keys import PoolKey, ledger_key
from nodepool.contract.messages import PoolFields, pool_fields
from nodepool.contract.model import NodePoolSpec
from nodepool.contract.outcomes import CommandOutcome
from quota import Hears, Says
from quota.decide import SERVICE
from quota.ledger import Ledger
from quota.state import State
from support.single import SingleService

LEDGER = ledger_key("acme", ZONE, KIND)
Outputs = list[Says | CommandOutcome]


class QuotaService(SingleService[State, Hears, Says]):
    """The quota service alone, with shortcuts for what it hears most often."""

    def __init__(self) -> None:
        super().__init__(SERVICE)
        self.generations = Counter[str]()

    def set_limit(self, limit: int, org: str = "acme") -> Outputs:
        """The outputs when the limit is set, and for the wakes that follow from it."""
        return self.hears(limit_of(limit, org))

    def specify(self, pool: str, target: int, **fields: object) -> Outputs:
        """The outputs when a NodePool has its next generation, with this target."""
        self.generations[pool] += 1
        return self.hears(specified(pool, target, self.generations[pool], **fields))

    def assign(self, pool: str, count: int) -> None:
        """So many machines are assigned to a NodePool, which leads to no output."""
        assert self.hears(*(assigned(pool, number) for number in range(count))) == []

    def unset_limit(self) -> Outputs:
        """The outputs when the limit is unset, and for the wakes that follow from it."""
        return self.hears(unset())

    def outputs_of(self, message: Hears | Wake) -> Outputs:
        """The outputs for one message, whether or not it could be processed."""
        return list(self._step(message, "").outputs)

    def next_wake(self) -> Wake:
        """The message that wakes the service for what is due now."""
        return Wake(service="quota", due=self.now)

    @property
    def ledger(self) -> Ledger:
        """The limit that the tests look at, and what is reserved under it."""
        return self.state.ledger(LEDGER)

    @property
    def line(self) -> list[str]:
        """The names of the NodePools that wait, longest waiting first."""
        return [key.rpartition("/")[2] for key in self.ledger.waiting]


def of(pool: str) -> PoolFields:
    """The identity of a NodePool, given as `name` or `org/cluster/name`."""
    return pool_fields(PoolKey(pool if "/" in pool else f"acme/prod/{pool}"))


def uid_of(pool: str, life: int = 1) -> str:
    """The uid of the first NodePool of this name, or of a later one."""
    return f"{pool}.{life}"


# What the service hears.


def limit_of(limit: int, org: str = "acme") -> SetQuota:
    """The command that sets the limit."""
    return SetQuota(org=org, zone=ZONE, instance_type=KIND, limit=limit)


def unset() -> DeleteQuota:
    """The command that unsets the limit."""
    return DeleteQuota(org="acme", zone=ZONE, instance_type=KIND)


def specified(pool: str, target: int, generation: int = 1, **fields: object) -> NodePoolValidated:
    """A valid NodePool with this target; `fields` replaces fields of the message."""
    default: dict[str, object] = {
        "uid": uid_of(pool),
        "generation": generation,
        "spec": NodePoolSpec(instance_type=KIND, target_nodes=target),
        "reason": Validated.VALID,
        "fault": "",
        "message": HEALTHY[Validated.VALID],
    }
    return sample(NodePoolValidated, **of(pool), **{**default, **fields})


def deleting(pool: str, uid: str = "") -> NodePoolDeleting:
    """A NodePool is being deleted."""
    return sample(NodePoolDeleting, **of(pool), uid=uid or uid_of(pool), generation=1)


def assigned(pool: str, number: int = 0, uid: str = "") -> CWNodeAssigned:
    """The machine of this number is assigned to a NodePool."""
    return sample(
        CWNodeAssigned,
        **of(pool),
        uid=uid or uid_of(pool),
        node=f"g{number}",
        assignment=number,
    )


def node_deleted(pool: str, number: int = 0, uid: str = "") -> CWNodeDeleted:
    """The Node of this number leaves its NodePool."""
    return sample(
        CWNodeDeleted,
        **of(pool),
        uid=uid or uid_of(pool),
        node=f"g{number}",
        assignment=number,
    )


def reserved(pool: str, number: int, *, usable: bool) -> NodeReservationChanged:
    """The Node of this number is reserved for the control plane, or is not any more."""
    return NodeReservationChanged(
        **of(pool), zone=ZONE, node=f"g{number}", assignment=number, usable=usable
    )


def acknowledged(
    pool: str, granted: int, number: int, uid: str = "", *, final: bool = False
) -> GrantAcknowledged:
    """From here on the allocator works to the grant of this number, or to none any more."""
    return GrantAcknowledged(
        **of(pool),
        uid=uid or uid_of(pool),
        generation=1,
        granted=granted,
        number=number,
        final=final,
    )


def pool_deleted(pool: str, uid: str = "") -> CWNodePoolDeleted:
    """A NodePool is gone."""
    return sample(CWNodePoolDeleted, **of(pool), uid=uid or uid_of(pool))


# What the service says.


def configured(limit: int, granted: int) -> Outputs:
    """A new limit is accepted, and so many Nodes are granted under it already."""
    return [
        CommandAccepted(org="acme", cluster="_", pool="_", command="SetQuota", result="configured"),
        QuotaSet(org="acme", zone=ZONE, instance_type=KIND, limit=limit, granted=granted),
    ]


def unlimited(granted: int) -> Outputs:
    """The limit is unset, and so many Nodes are reserved."""
    return [
        CommandAccepted(org="acme", cluster="_", pool="_", command="DeleteQuota", result="deleted"),
        QuotaDeleted(org="acme", zone=ZONE, instance_type=KIND, granted=granted),
    ]


def verdict(
    pool: str,
    reason: Quota,
    *,
    granted: int,
    limit: int | None,
    used: int,
    generation: int = 1,
    message: str = HEALTHY[Quota.UNDER],
    number: int = 1,
    beyond: int = 0,
) -> QuotaChecked:
    """How many Nodes a NodePool may have."""
    return QuotaChecked(
        **of(pool),
        generation=generation,
        uid=uid_of(pool),
        reason=reason,
        granted=granted,
        zone=ZONE,
        instance_type=KIND,
        limit=limit,
        used=used,
        message=message,
        number=number,
        beyond=beyond,
    )


def warning(pool: str, message: str) -> CWOverQuota:
    """The Kubernetes event beside a verdict other than `Under`."""
    return CWOverQuota(**of(pool), message=message)


def exceeds(target: int, limit: int, used: str = "") -> str:
    """The message of a verdict and a warning for a target above the limit."""
    return f"targetNodes {target} exceeds quota {limit} for {KIND}" + (used and f" ({used})")


def not_set(target: int) -> str:
    """The message of a verdict and a warning where there is no limit."""
    return f"no quota is set for {KIND} in {ZONE}, and targetNodes is {target}"


def released(pool: str, granted: int, used: int) -> QuotaReleased:
    """A NodePool keeps so many Nodes reserved, and gave back the rest."""
    return QuotaReleased(**of(pool), granted=granted, zone=ZONE, instance_type=KIND, used=used)
