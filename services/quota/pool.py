"""A NodePool in the quota service: what it wants, may have and has, and its last verdict."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from immutables import Map

from nodepool.contract.catalog import rack_size
from nodepool.contract.conditions import Quota
from nodepool.contract.events import QuotaChecked
from nodepool.contract.keys import LedgerKey, PoolKey, ledger_parts
from nodepool.state.values import replace

ALWAYS_FITS: Final = -(1 << 48)
"""How many Nodes a NodePool lacks that wants no more than it may keep: less than any free room."""


class Grant(NamedTuple):
    """How many Nodes a NodePool may have, and the number of this grant.

    Each new grant of a NodePool has a higher number. The service forgets an invalid NodePool for
    which no Node is reserved, but remembers the number of its last grant in `State.numbers`.
    """

    number: int
    nodes: int


class Warned(NamedTuple):
    """The content of the last `CWOverQuota`; another warning is due once the content differs."""

    reason: Quota
    target: int
    limit: int | None


@dataclass(frozen=True, slots=True)
class Pool:
    """A NodePool and its part in a ledger.

    wants: `target` Nodes in this `generation`; also `racks`, if its spec gives the target in racks.
    eligible: whether it is valid and not being deleted, so that it may be granted Nodes.
    deleting: whether it is being deleted.
    grants: the grant that the allocator is known to use, then the grants published later, in their
        order; the last grant is how many Nodes the NodePool may have.
    held: how many Nodes it has, without the Nodes in `away`.
    away: its Nodes that are reserved for the control plane, each with its assignment.
    beyond: how many of its Nodes came back from the control plane and are more than any grant
        covers. These Nodes count against the limit, and no grant grows because of them.
    reserved: how many Nodes count against the limit for it, as published last.
    reason, message: the verdict that was published last; no reason before the first verdict.
    warned: the content of the last warning; None while it is within the limit.
    fault: why its last check failed; empty if the check succeeded.
    shrinks: whether its grant must still shrink to its entitled Nodes, because its check failed
        when the limit was lowered below the number of reserved Nodes.
    former: another limit that an earlier NodePool of this name counted against; None if there is
        no such limit, or once its release is published.
    created: when it was created.
    withdrawn: whether it has become invalid since its last grant, and so lost that grant.
    last_number: the number of its last grant before it was forgotten while invalid.
    unvalidated: whether the validation of its newest version failed. Its other fields then describe
        the last validated version; it keeps its place in line and its grant.
    """

    key: PoolKey
    uid: str
    ledger: LedgerKey
    generation: int = 0
    target: int = 0
    eligible: bool = False
    deleting: bool = False
    grants: tuple[Grant, ...] = ()
    held: int = 0
    reserved: int = 0
    reason: Quota | None = None
    message: str = ""
    warned: Warned | None = None
    fault: str = ""
    shrinks: bool = False
    former: LedgerKey | None = None
    racks: int | None = None
    created: datetime | None = None
    withdrawn: bool = False
    unvalidated: bool = False
    away: Map[str, int] = Map()
    last_number: int = 0
    beyond: int = 0

    @property
    def granted(self) -> int:
        """Return how many Nodes it may have, as published last."""
        return self.grants[-1].nodes if self.grants and not self.withdrawn else 0

    @property
    def covered(self) -> int:
        """Return how many Nodes it may have under any limit, since no grant grows.

        These are the Nodes that a grant covers, and those that replace its lost Nodes up to its
        grant, unless its grant must shrink.
        """
        return self.entitled if self.shrinks else max(self.granted, self.entitled)

    @property
    def entitled(self) -> int:
        """Return how many of its Nodes a grant covers: all that are not `beyond`."""
        return self.held - self.beyond

    @property
    def kept(self) -> int:
        """Return the grant that it keeps while its target does not fit.

        That is its grant or the number of its entitled Nodes, whichever is larger, but at most its
        target.
        """
        return min(max(self.granted, self.entitled), self.target)

    @property
    def number(self) -> int:
        """Return the number of its last grant; 0 before the first grant."""
        return self.grants[-1].number if self.grants else self.last_number

    @property
    def needed(self) -> int:
        """Return how many Nodes must stay reserved: its Nodes, or more if a grant allows more."""
        return max(self.held, self._allowed)

    @property
    def _allowed(self) -> int:
        """Return how many Nodes grants cover, or allow the allocator to assign."""
        return max(self.entitled, *(grant.nodes for grant in self.grants), 0)

    @property
    def is_releasable(self) -> bool:
        """Return whether a release has to be published for the NodePool.

        A NodePool releases what it has reserved beyond its need, and what an earlier NodePool of
        its name has not given back. A NodePool that gets no verdict also publishes a release if it
        needs more, because a Node counts again; and if it can be forgotten, because it needs
        nothing and has no Node in `away` that may count again.
        """
        if self.former is not None:
            return True
        if self.eligible:
            return self.needed < self.reserved
        return self.needed != self.reserved or not (self.needed or self.away)

    @property
    def is_uncovered(self) -> bool:
        """Return whether it wants to keep Nodes that its grant does not cover.

        The allocator may have assigned these Nodes by an earlier grant, before it acknowledged a
        smaller grant. Or these Nodes were reserved for the control plane, and count again. Or these
        Nodes are `beyond`, and a verdict has to name them.
        """
        if not self.eligible:
            return False
        is_settled = len(self.grants) <= 1
        return self.held > self.reserved or (is_settled and self.granted < self.kept)

    @property
    def returning(self) -> int:
        """Return how many Nodes it gives back while it waits, once its grant is confirmed."""
        if not self._is_checked or self.reason in (None, Quota.UNDER):
            return 0
        return max(0, self.reserved - self.own_room - max(self.granted, self.entitled))

    @property
    def own_room(self) -> int:
        """Return how many Nodes are reserved for Nodes that are `beyond`.

        This room is for its own target. Other NodePools cannot use this room while the Nodes stay,
        which may be as long as workloads run there.
        """
        if not self.beyond or not self._is_checked:
            return 0
        return max(0, self.reserved - self._allowed)

    @property
    def _is_checked(self) -> bool:
        return self.eligible and not (self.fault or self.unvalidated)

    @property
    def lacks(self) -> int | None:
        """Return how many more Nodes its target needs after it has given Nodes back.

        Return None while it cannot be checked. A target that is covered fits any limit.
        """
        if self.fault or self.unvalidated:
            return None
        if self.target <= self.covered:
            return ALWAYS_FITS
        return self.target - self.reserved + self.returning + self.own_room

    def with_held(self, held: int) -> "Pool":
        """Return the NodePool with this number of Nodes; more than any grant allows are `beyond`.

        Nodes that fill up the last rack are not `beyond`, since only whole racks leave.
        """
        _, _, instance_type = ledger_parts(self.ledger)
        size = rack_size(instance_type) or 1
        racks = -(-self._allowed // size)
        return replace(self, held=held, beyond=max(0, held - racks * size))

    def apply_verdict(self, verdict: QuotaChecked) -> "Pool":
        """Return the NodePool with this verdict."""
        grant = Grant(verdict.number, verdict.granted)
        grants = self.grants if self.grants[-1:] == (grant,) else _usable((*self.grants, grant))
        pool = replace(
            self,
            grants=grants,
            reason=verdict.reason,
            message=verdict.message,
            warned=None if verdict.reason is Quota.UNDER else self.warned,
            fault="",
            shrinks=False,
            withdrawn=False,
        )
        # A grant covers Nodes that were `beyond` until now.
        pool = pool.with_held(self.held)
        return replace(pool, reserved=max(pool.reserved, pool.needed))

    def acknowledge(self, number: int, nodes: int, *, final: bool) -> "Pool":
        """Return the NodePool once the allocator works to the grant `number`, or to no grant.

        The allocator uses no earlier grant any more, and assigns no Node beyond `nodes` by this
        grant: an invalid NodePool may get no Node.

        final: whether the allocator uses no grant any more.
        """
        grants = tuple(
            Grant(each.number, min(each.nodes, nodes)) if each.number == number else each
            for each in self.grants
            if each.number >= number and not final
        )
        return replace(self, grants=_usable(grants))


def _usable(grants: tuple[Grant, ...]) -> tuple[Grant, ...]:
    """Return the grants; drop the first grant while the next grant allows at least as much."""
    while len(grants) > 1 and grants[1].nodes >= grants[0].nodes:
        grants = grants[1:]
    return grants
