"""How many machines a NodePool may have, has, and waits for."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import NamedTuple, Self

from nodepool.contract.conditions import Quota, Validated
from nodepool.contract.events import QuotaChecked
from nodepool.contract.keys import OfferingKey, PoolKey, offering_key
from nodepool.contract.model import ComputeClass, NodePoolSpec
from nodepool.placement.ranking import Waiting
from nodepool.placement.waits import NO_WAIT, Wait
from nodepool.state.values import replace


class Grant(NamedTuple):
    """The number of Nodes that quota grants, for a generation, and the number of the grant.

    beyond: how many Nodes the NodePool had beyond the grant because the control plane gave these
        Nodes back; 0 if the whole target is granted, so that a higher target keeps Nodes until
        quota judges the target.
    """

    generation: int
    nodes: int
    number: int = 0
    beyond: int = 0


class Check(NamedTuple):
    """The grant for which capacity is checked.

    since: since when the NodePool waits for machines.
    is_renewed: whether generation, grant and wait are the same as in the check before. Such a check
        changes neither which NodePools are served nor their order.
    """

    generation: int
    nodes: int
    since: datetime | None = None
    is_renewed: bool = False


@dataclass(frozen=True)
class Claimant(ABC):
    """The part of a NodePool that capacity and allocator know, each from its own messages.

    generation, spec, valid: its desired state, and whether that state can be delivered.
    invalid: whether its desired state is wrong. A NodePool is neither `valid` nor `invalid` while
        its validation fails.
    grant: the last quota verdict; None before the first verdict.
    check: the last check; None before the first check, and after a failed check.
    quota_failed: whether its last quota check failed, so that no machine is kept for it until the
        next quota verdict.
    wait: since when it waits for each machine that it lacks.

    A service adds what it holds: `held` and `domains`, its Nodes in all and by NVLink domain, and
    `leaving`, those of them that leave for a scale-down.
    """

    key: PoolKey
    uid: str
    zone: str
    generation: int
    spec: NodePoolSpec
    valid: bool
    invalid: bool = False
    grant: Grant | None = None
    check: Check | None = None
    quota_failed: bool = False
    wait: Wait = NO_WAIT

    @property
    @abstractmethod
    def held(self) -> int:
        """Return how many Nodes it has."""

    @property
    @abstractmethod
    def domains(self) -> Mapping[str, int]:
        """How many Nodes it has in each NVLink domain; one empty domain if no racks matter."""

    @property
    @abstractmethod
    def leaving(self) -> Mapping[str, int]:
        """How many of these Nodes leave for a scale-down; only needed if racks matter."""

    @property
    def is_checked(self) -> bool:
        """Whether a check has succeeded, so that it keeps its place while it is checked again."""
        return self.check is not None

    @property
    def offering(self) -> OfferingKey:
        """Return where its machines come from."""
        return offering_key(self.zone, self.spec.instance_type)

    @property
    def is_spot(self) -> bool:
        """Return whether its Nodes may have to give way."""
        return self.spec.compute_class is ComputeClass.SPOT

    @cached_property
    def rack_size(self) -> int:
        """Return how many Nodes form a rack; 1 for a type that does not come in racks."""
        return self.spec.rack_size or 1

    @cached_property
    def goal(self) -> int | None:
        """Return how many Nodes it may have now: its grant, at most its target.

        None until the checks of its current generation are done, and for an invalid NodePool.
        """
        grant, check = self.grant, self.check
        if grant is None or check is None or not self.valid:
            return None
        if not self.generation == grant.generation == check.generation:
            return None
        return min(grant.nodes, self.spec.target) if grant.nodes == check.nodes else None

    @property
    def claimed(self) -> int | None:
        """Return how many Nodes it may have now, even while its newest version is being checked.

        During the check, the number is what the last checks allow, at most the target. So a change
        of other settings does not cost the NodePool the machines that become free for it. After a
        failed check there is no such claim: the check may fail for a long time, and other NodePools
        must not wait for it.
        """
        goal, grant, check = self.goal, self.grant, self.check
        if goal is not None or grant is None or check is None:
            return goal
        if not self.valid or self.quota_failed or not self.is_checked:
            return None
        return min(grant.nodes, check.nodes, self.spec.target)

    @cached_property
    def claim(self) -> int:
        """Return how many Nodes the NodePool still lacks of those that it may have.

        As many machines are kept for it as machines become free. Capacity is Partial if only some
        of them can be had.

        While its newest version is being checked, the number is at most the number of machines that
        the NodePool waited for. After the checks it has a position for each Node that it lacks.
        """
        return min(max(0, (self.claimed or 0) - self.held), self.wait.lacks)

    @cached_property
    def waiting(self) -> Waiting | None:
        """How it waits for machines; None if it does not wait."""
        claim, since = self.claim, self.wait.since
        if not claim or since is None:
            return None
        return Waiting.of(self.key, self.spec, since, self.wait.trim(claim).runs)

    def with_spec(self, generation: int, spec: NodePoolSpec, reason: Validated) -> Self:
        """Return the NodePool with this desired state.

        After an invalid version it waits for no Node until the next grant: the invalid version had
        no position and no grant beyond its Nodes.
        """
        valid, wait = reason is Validated.VALID, self.wait
        if self.invalid:
            wait = wait.with_target(self.held, self.held)
        if valid:
            wait = wait.with_target(spec.target, self.held)
        return replace(
            self,
            generation=generation,
            spec=spec,
            valid=valid,
            invalid=reason is Validated.INVALID,
            wait=wait,
        )

    def with_grant(self, verdict: QuotaChecked, now: datetime) -> Self:
        """Return the NodePool with a grant; it waits for the machines that the grant adds."""
        beyond = 0 if verdict.reason is Quota.UNDER else verdict.beyond
        grant = Grant(verdict.generation, verdict.granted, verdict.number, beyond)
        pool = replace(self, grant=grant, quota_failed=False)
        if verdict.generation != self.generation:
            return pool
        nodes = min(verdict.granted, self.spec.target)
        return replace(pool, wait=self.wait.with_grant(nodes, self.held, now))
