"""Reads the log as an outsider would, and knows nothing of how the services come to their outputs.

It folds the plain JSON of what was said into its own small books, and raises `AuditError` at the
first message that breaks a rule of the house.
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from nodepool.contract.log import Entry

Said = dict[str, Any]
WARNING, WINDOW = timedelta(minutes=2), timedelta(minutes=7)
BOOT_MAX = timedelta(minutes=30)
OUTCOMES = ("CommandAccepted", "CommandRefused")
TRIAGE = "triage"


class AuditError(AssertionError):
    """The log says something that it must never say."""


@dataclass
class Machine:
    """A machine, and who holds it: a NodePool's uid, triage, or nobody."""

    zone: str
    instance_type: str
    labels: dict[str, str]
    holder: str = ""


@dataclass
class Pool:
    """What was said about one NodePool, each with its position; `gone` are the Nodes that left."""

    key: str
    uid: str
    ledger: tuple[str, str, str]
    spec: Said
    wishes: list[tuple[int, Said]] = field(default_factory=list)
    grants: list[tuple[int, Said]] = field(default_factory=list)
    checks: list[tuple[int, Said]] = field(default_factory=list)
    confirmed: int = 0
    assigned: int = 0
    gone: list[int] = field(default_factory=list)
    deleting_since: int | None = None
    emptied: bool = False

    @property
    def offering(self) -> tuple[str, str]:
        return self.ledger[1:]

    @property
    def held(self) -> int:
        return self.assigned - len(self.gone)

    def held_as_of(self, position: int) -> int:
        """The Nodes it holds for somebody who has read no departure after this position."""
        return self.assigned - bisect_right(self.gone, position)

    @property
    def reserved(self) -> int:
        """The most it may hold under what was granted and not given back, or does hold."""
        grants: list[int] = [
            said["granted"] for position, said in self.grants if position >= self.confirmed
        ]
        return max([*grants, self.held])


@dataclass
class Stay:
    """One machine's time in one NodePool."""

    pool: Pool
    machine: str
    assigned: datetime
    phase: str = "assigned"
    booted: bool = False
    failed: bool = False
    asked: list[tuple[int, Said]] = field(default_factory=list)
    warned: tuple[int, datetime] | None = None
    in_progress: bool = False
    overdue: bool = False
    working: bool = False
    drained: bool = False


def rank(spec: Said, since: str, key: str) -> tuple[bool, int, datetime, str]:
    """Where a wish stands among those that wait: class, priority, first come."""
    spot = spec.get("computeClass") == "spot"
    priority = (spec.get("schedulingPriority") or {}).get("value", 0)
    return spot, -priority, datetime.fromisoformat(since), key


def fits(spec: Said, machine: Machine) -> bool:
    """Whether a machine satisfies a wish's affinity; simulations name racks and nothing else."""
    affinity = spec.get("affinity") or {}
    selector = (affinity.get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if not selector:
        return True
    (expression,) = selector["nodeSelectorTerms"][0]["matchExpressions"]
    return machine.labels.get(expression["key"]) in expression["values"]


def latest(said: list[tuple[int, Said]], position: int) -> Said | None:
    """The last of these that somebody who has read up to a position knows."""
    found = bisect_right(said, position, key=lambda one: one[0])
    return said[found - 1][1] if found else None


class Auditor:
    """The books of an outsider; `noise` are the positions of what no service said."""

    def __init__(self) -> None:
        self.noise: set[int] = set()
        self.machines: dict[str, Machine] = {}
        self.pools: dict[str, Pool] = {}
        self.keys: dict[str, str] = {}
        self.stays: dict[int, Stay] = {}
        self.limits: dict[tuple[str, str, str], int] = {}
        self.outcomes: dict[tuple[str, str, str], set[str]] = {}
        self.times: list[datetime] = []
        self.deleted: set[str] = set()
        self._last = 0

    def read(self, entry: Entry) -> None:
        """Takes the next entry of the log."""
        self.times.append(entry.time)
        tokens = entry.subject.split(".")
        if tokens[1] != "evt" or tokens[2] == "clock" or entry.position in self.noise:
            return
        envelope = json.loads(entry.content)
        said, name = envelope["data"], tokens[-1]
        if name in OUTCOMES:
            self._outcome(name, envelope["correlationid"], tokens, said)
            return
        rule = RULES.get(name)
        if rule is not None:
            try:
                rule(self, said, entry.position, envelope["causeposition"])
            except KeyError as unknown:
                raise AuditError(
                    f"{name} is said of {unknown}, which nobody has heard of"
                ) from None

    @property
    def position(self) -> int:
        """How far it has read."""
        return len(self.times)

    def time(self, position: int) -> datetime:
        """When the entry at this position was stored."""
        return self.times[position - 1]

    def pool_at(self, key: str) -> Pool | None:
        """The NodePool of this key that is there now."""
        uid = self.keys.get(key)
        return self.pools[uid] if uid is not None else None

    def living(self) -> Iterator[Pool]:
        """The NodePools that are there now."""
        return (self.pools[uid] for uid in self.keys.values())

    def nodes_of(self, pool: Pool) -> list[Stay]:
        """The Nodes that a NodePool holds."""
        return [one for one in self.stays.values() if one.pool is pool and one.phase != "gone"]

    def _outcome(self, name: str, id: str, tokens: list[str], said: Said) -> None:
        told = "/".join(tokens[3:6])
        content = {key: said.get(key) for key in ("result", "generation", "field", "reason")}
        found = self.outcomes.setdefault((told, said["command"], id), set())
        found.add(f"{name} {content}")
        if len(found) > 1:
            raise AuditError(f"command {id} to {told} has two outcomes: {sorted(found)}")

    # The validator.

    def _wished(self, said: Said, position: int, _cause: int) -> None:
        key = key_of(said)
        pool = self.pools.get(said["uid"])
        if pool is None:
            if key in self.keys:
                raise AuditError(f"{key} is created while another of its name is there")
            ledger = (said["org"], said["zone"], said["spec"]["instanceType"])
            pool = self.pools[said["uid"]] = Pool(key, said["uid"], ledger, said["spec"])
            self.keys[key] = said["uid"]
        elif said["generation"] < pool.wishes[-1][1]["generation"]:
            raise AuditError(f"{key} goes back to generation {said['generation']}")
        elif said["spec"]["instanceType"] != pool.spec["instanceType"]:
            raise AuditError(f"{key} changes its instance type")
        pool.spec = said["spec"]
        pool.wishes.append((position, said))

    def _deleting(self, said: Said, position: int, _cause: int) -> None:
        self._pool(said).deleting_since = position

    def _pool_deleted(self, said: Said, _position: int, _cause: int) -> None:
        pool = self._pool(said)
        if not pool.emptied:
            raise AuditError(f"{pool.key} is deleted before its Nodes are removed")
        self.deleted.add(pool.key)
        del self.keys[pool.key]

    def _pool(self, said: Said) -> Pool:
        pool = self.pools.get(said["uid"])
        if pool is None or self.keys.get(pool.key) != pool.uid:
            raise AuditError(f"{key_of(said)} is spoken of and is not there: {said}")
        return pool

    # Quota.

    def _limited(self, said: Said, _position: int, _cause: int) -> None:
        self.limits[said["org"], said["zone"], said["instanceType"]] = said["limit"]

    def _grant(self, said: Said, position: int, _cause: int) -> None:
        pool = self.pools[said["uid"]]
        before = self._reserved(pool.ledger)
        pool.grants.append((position, said))
        self._within(pool, before, f"grants {said['granted']} Nodes to {pool.key}")

    def _confirm(self, said: Said, _position: int, cause: int) -> None:
        self.pools[said["uid"]].confirmed = cause

    def _reserved(self, ledger: tuple[str, str, str]) -> int:
        return sum(pool.reserved for pool in self.living() if pool.ledger == ledger)

    def _within(self, pool: Pool, before: int, what: str) -> None:
        limit, after = self.limits.get(pool.ledger, 0), self._reserved(pool.ledger)
        if after > max(limit, before):
            raise AuditError(f"{what}: {after} of {limit} in {'/'.join(pool.ledger)}")

    # Capacity and the allocator.

    def _checked(self, said: Said, position: int, _cause: int) -> None:
        self.pools[said["uid"]].checks.append((position, said))

    def _check_failed(self, said: Said, position: int, _cause: int) -> None:
        pool = self.pool_at(key_of(said))
        if pool is not None:
            pool.checks.append((position, {}))

    def _assign(self, said: Said, position: int, cause: int) -> None:
        pool, name = self._pool(said), f"{said['zone']}/{said['node']}"
        machine = self.machines.get(name)
        if machine is None or (machine.zone, machine.instance_type) != pool.offering:
            raise AuditError(f"{pool.key} is given {name}, which is not of its offering")
        if machine.holder:
            raise AuditError(f"{pool.key} is given {name}, which {machine.holder} holds")
        if said["assignment"] <= self._last:
            raise AuditError(f"the assignment {said['assignment']} is not a new one")
        spec = self._granted(pool, cause)
        if not fits(spec, machine):
            raise AuditError(f"{pool.key} is given {name}, which its affinity does not accept")
        self._served(pool, spec, machine, cause)
        self._last = said["assignment"]
        before = self._reserved(pool.ledger)
        machine.holder = pool.uid
        pool.assigned += 1
        self.stays[self._last] = Stay(pool, name, self.time(position))
        self._within(pool, before, f"{pool.key} takes {name}")

    def _granted(self, pool: Pool, cause: int) -> Said:
        """The wish that this Node is for."""
        wish, grant = latest(pool.wishes, cause), latest(pool.grants, cause)
        if wish is None or wish["reason"] != "Valid":
            raise AuditError(f"{pool.key} is given a Node without a valid wish")
        if pool.deleting_since is not None and pool.deleting_since <= cause:
            raise AuditError(f"{pool.key} is given a Node while it is deleted")
        if grant is None or grant["generation"] != wish["generation"]:
            raise AuditError(f"{pool.key} is given a Node that was not granted for what it wants")
        if grant["reason"] != "Under":
            raise AuditError(f"{pool.key} is given a Node while it is over its quota")
        if pool.held_as_of(cause) >= grant["granted"]:
            raise AuditError(f"{pool.key} holds {pool.held_as_of(cause)} of {grant['granted']}")
        spec: Said = wish["spec"]
        return spec

    def _served(self, pool: Pool, spec: Said, machine: Machine, cause: int) -> None:
        check = latest(pool.checks, cause)
        if not check:
            raise AuditError(f"{pool.key} is given a Node before its capacity was checked")
        place = rank(spec, check["since"], pool.key)
        for other in self.living():
            found = self._waits(other, cause) if other.offering == pool.offering else None
            if other is pool or found is None:
                continue
            wanted, since = found
            if fits(wanted, machine) and rank(wanted, since, other.key) < place:
                raise AuditError(f"{pool.key} is served before {other.key}, who was first")

    def _waits(self, pool: Pool, cause: int) -> tuple[Said, str] | None:
        """What a NodePool waits for, and since when; None for one that may have no more."""
        wish, grant = latest(pool.wishes, cause), latest(pool.grants, cause)
        check = latest(pool.checks, cause)
        if wish is None or grant is None or not check or wish["reason"] != "Valid":
            return None
        if pool.deleting_since is not None and pool.deleting_since <= cause:
            return None
        judged = grant["generation"] == check["generation"] == wish["generation"]
        if not judged or check["granted"] != grant["granted"] or grant["reason"] != "Under":
            return None
        short = pool.held_as_of(cause) < grant["granted"]
        return (wish["spec"], check["since"]) if short else None

    def _ask(self, said: Said, position: int, _cause: int) -> None:
        self.stays[said["assignment"]].asked.append((position, said))

    def _emptied(self, said: Said, _position: int, _cause: int) -> None:
        pool = self._pool(said)
        if said["removal"] == "PoolDeleted":
            if pool.held:
                raise AuditError(f"{pool.key} is called empty and holds {pool.held} Nodes")
            pool.emptied = True

    # The fleet.

    def _added(self, said: Said, _position: int, _cause: int) -> None:
        name = f"{said['zone']}/{said['machine']}"
        if name in self.machines:
            raise AuditError(f"{name} is added twice")
        self.machines[name] = Machine(said["zone"], said["instanceType"], said["labels"])

    def _repaired(self, said: Said, _position: int, _cause: int) -> None:
        machine = self.machines[f"{said['zone']}/{said['machine']}"]
        if machine.holder == TRIAGE:
            machine.holder = ""

    def _booted(self, said: Said, _position: int, _cause: int) -> None:
        self.stays[said["assignment"]].booted = True

    def _failed(self, said: Said, _position: int, _cause: int) -> None:
        self.stays[said["assignment"]].failed = True

    def _observed(self, said: Said, _position: int, _cause: int) -> None:
        stay = self.stays[said["assignment"]]
        working = [pod for pod in said["pods"] if not (pod["daemonSet"] or pod["verification"])]
        if working and stay.phase == "gone" and not stay.overdue:
            raise AuditError(f"{stay.machine} works and was deleted before anybody looked")
        stay.working = bool(working)

    # The lifecycle.

    def _stay(self, said: Said) -> Stay:
        stay = self.stays[said["assignment"]]
        if stay.phase == "gone":
            raise AuditError(f"{stay.machine} of {stay.pool.key} is gone and spoken of: {said}")
        return stay

    def _registered(self, said: Said, _position: int, _cause: int) -> None:
        stay = self._stay(said)
        if stay.phase != "assigned" or not stay.booted:
            raise AuditError(f"{stay.machine} is registered when {stay.phase}")
        stay.phase = "production"

    def _given_up(self, said: Said, position: int, cause: int) -> None:
        stay = self._stay(said)
        if stay.phase != "assigned":
            raise AuditError(f"{stay.machine} fails to register when {stay.phase}")
        if not stay.failed and self.time(cause) - stay.assigned < BOOT_MAX:
            raise AuditError(f"{stay.machine} is given up early")
        self._leaves(stay, position, TRIAGE)

    def _updated(self, said: Said, _position: int, cause: int) -> None:
        stay = self._stay(said)
        if stay.phase == "assigned":
            raise AuditError(f"{stay.machine} is updated before it is registered")
        if said["phase"] == "cordoned" and not self._announced(stay, cause):
            raise AuditError(f"{stay.machine} is cordoned and nobody asked for it")
        stay.phase = said["phase"]
        stay.drained = stay.drained and stay.phase == "draining"

    def _drained(self, said: Said, _position: int, cause: int) -> None:
        stay = self._stay(said)
        if stay.phase not in ("cordoned", "draining"):
            raise AuditError(f"{stay.machine} is drained when {stay.phase}")
        if self._preempted(stay, cause) and not stay.in_progress:
            raise AuditError(f"{stay.machine} is drained while its preemption is pending")
        stay.phase, stay.drained = "draining", True

    def _node_deleted(self, said: Said, position: int, cause: int) -> None:
        stay = self._stay(said)
        if not self._announced(stay, cause):
            raise AuditError(f"{stay.machine} is deleted and nobody asked for it")
        if said["registered"] is (stay.phase == "assigned"):
            raise AuditError(f"{stay.machine} is deleted as registered={said['registered']}")
        if said["registered"] and stay.phase != "draining" and not stay.overdue:
            raise AuditError(f"{stay.machine} is deleted when {stay.phase}")
        # One that was drained already when it was warned may leave as soon as it is empty.
        begun = stay.in_progress or stay.overdue or stay.drained
        if self._preempted(stay, cause) and not begun:
            raise AuditError(f"{stay.machine} is deleted for preemption early")
        if stay.working and not stay.overdue:
            raise AuditError(f"{stay.machine} is deleted while it works")
        self._leaves(stay, position, "")

    def _announced(self, stay: Stay, cause: int) -> bool:
        return latest(stay.asked, cause) is not None or self._preempted(stay, cause)

    def _preempted(self, stay: Stay, cause: int) -> bool:
        return stay.warned is not None and stay.warned[0] <= cause

    def _leaves(self, stay: Stay, position: int, holder: str) -> None:
        stay.phase = "gone"
        stay.pool.gone.append(position)
        self.machines[stay.machine].holder = holder

    # Preemption.

    def _warned(self, said: Said, position: int, cause: int) -> None:
        stay = self.stays[said["assignment"]]
        if stay.warned is not None:
            raise AuditError(f"{stay.machine} is warned twice")
        if stay.pool.spec.get("computeClass") != "spot":
            raise AuditError(f"{stay.machine} is preempted and is no spot Node")
        stay.warned = (position, self.time(cause))

    def _evicted(self, said: Said, _position: int, cause: int) -> None:
        stay = self.stays[said["assignment"]]
        self._due(stay, cause, WARNING)
        stay.in_progress = True

    def _overdue(self, said: Said, _position: int, cause: int) -> None:
        stay = self.stays[said["assignment"]]
        self._due(stay, cause, WINDOW)
        stay.overdue = True

    def _due(self, stay: Stay, cause: int, after: timedelta) -> None:
        if stay.warned is None or self.time(cause) - stay.warned[1] < after:
            raise AuditError(f"the preemption of {stay.machine} moves on early")


def key_of(said: Said) -> str:
    """The key of the NodePool that a message is about."""
    return f"{said['org']}/{said['cluster']}/{said['pool']}"


RULES: Mapping[str, Callable[[Auditor, Said, int, int], None]] = {
    "NodePoolValidated": Auditor._wished,
    "NodePoolDeleting": Auditor._deleting,
    "CWNodePoolDeleted": Auditor._pool_deleted,
    "QuotaSet": Auditor._limited,
    "QuotaChecked": Auditor._grant,
    "GrantAcknowledged": Auditor._confirm,
    "CapacityChecked": Auditor._checked,
    "CapacityCheckFailed": Auditor._check_failed,
    "CWNodeAssigned": Auditor._assign,
    "CWNodeDeletionRequestSuccess": Auditor._ask,
    "CWNodePoolNodesRemoved": Auditor._emptied,
    "MachineAdded": Auditor._added,
    "MachineRepaired": Auditor._repaired,
    "MachineBooted": Auditor._booted,
    "MachineFailed": Auditor._failed,
    "NodeObserved": Auditor._observed,
    "CWNodeRegistered": Auditor._registered,
    "CWNodeRegistrationFailed": Auditor._given_up,
    "NodeUpdated": Auditor._updated,
    "CWDrainNode": Auditor._drained,
    "CWNodeDeleted": Auditor._node_deleted,
    "PreemptionPending": Auditor._warned,
    "PreemptionInProgress": Auditor._evicted,
    "PreemptionOverdue": Auditor._overdue,
}
"""What the books make of each message; of any other they take no note."""
