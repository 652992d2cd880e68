"""A NodePool as far as a limit depends on it: what it wants, may have, has, and was told."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple

from immutables import Map

from nodepool.contract.conditions import Quota
from nodepool.contract.events import QuotaChecked
from nodepool.contract.keys import LedgerKey, PoolKey

ALWAYS_FITS: Final = -(1 << 48)
"""What a NodePool lacks that has all the Nodes that it wants: less than any room."""


class Grant(NamedTuple):
    """How many Nodes a NodePool may have, and the number of the grant among those of the NodePool.

    The service forgets an invalid NodePool for which nothing is reserved, and its numbers begin
    again: the allocator has acknowledged by then every grant that it could ever acknowledge.
    """

    number: int
    nodes: int


class Warned(NamedTuple):
    """What the last `CWOverQuota` was about; another one is due where this differs."""

    reason: Quota
    target: int
    limit: int | None


@dataclass(frozen=True, slots=True)
class Pool:
    """A NodePool and its part in a ledger.

    wants: `target` Nodes, in this `generation`; and `racks`, if its spec says the target in racks.
    eligible: whether it is valid and stays, so that it may be granted Nodes.
    deleting: whether it is on its way out.
    grants: the one that the allocator works to, as far as it is known, then those that were
        published after it, in their order; the last one is what the NodePool may have.
    held: the Nodes that it has, without those that are reserved for the control plane.
    away: the Nodes that are reserved for the control plane, each with its assignment.
    reserved: what counts against the limit for it, as it was published last.
    reason, message: the verdict that was published last; no reason before the first.
    warned: what the last warning was about; None while it is within the limit.
    fault: why its last check failed; empty where it did not.
    shrinks: whether its grant is still to shrink to what it holds, because its check failed when
        the limit was lowered below what is reserved.
    former: the other limit that an earlier NodePool of this name counted against; None once it is
        published that nothing does any more, which may have failed before.
    created: when it was created.
    withdrawn: whether it has become invalid since its last grant, which it does not have any more.
    last_number: the number of the last grant that it had before it was forgotten while invalid.
    unvalidated: whether its newest version could not be validated; all else is of the last one
        that could be, and its place in line and its grant stay what they are.
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

    @property
    def granted(self) -> int:
        """How many Nodes it may have, as it was published last."""
        return self.grants[-1].nodes if self.grants and not self.withdrawn else 0

    @property
    def kept(self) -> int:
        """Return the grant that it keeps while its target does not fit.

        That is what it has been granted, or has, and never more than its target.
        """
        return min(max(self.granted, self.held), self.target)

    @property
    def number(self) -> int:
        """The number of its last grant; 0 before the first."""
        return self.grants[-1].number if self.grants else self.last_number

    @property
    def needed(self) -> int:
        """What has to stay reserved: the Nodes that are there, and those that may still come."""
        return max(self.held, *(grant.nodes for grant in self.grants), 0)

    @property
    def is_releasable(self) -> bool:
        """Return whether a release has to be published for the NodePool.

        A NodePool releases what it has reserved beyond its need, and what an earlier NodePool of
        its name has not given back. A NodePool that gets no verdict also publishes that it needs
        more, for a Node that counts again, and that it can be forgotten: it needs nothing, and has
        no reserved Node that may count again.
        """
        if self.former is not None:
            return True
        if self.eligible:
            return self.needed < self.reserved
        return self.needed != self.reserved or not (self.needed or self.away)

    @property
    def is_uncovered(self) -> bool:
        """Whether it has Nodes that its grant does not cover, though it wants to keep them.

        The allocator may have assigned them by an earlier grant until it acknowledged a smaller
        one; or they count again.
        """
        if not self.eligible:
            return False
        is_settled = len(self.grants) <= 1
        return self.held > self.reserved or (is_settled and self.granted < self.kept)

    @property
    def returning(self) -> int:
        """Return how many Nodes it gives back while it waits, once its grant is confirmed."""
        is_checked = self.eligible and not (self.fault or self.unvalidated)
        if not is_checked or self.reason in (None, Quota.UNDER):
            return 0
        return max(0, self.reserved - max(self.granted, self.held))

    @property
    def is_settled(self) -> bool:
        """Return whether its target needs no Node that it gives back."""
        return not self.returning or self.target <= self.reserved - self.returning

    @property
    def lacks(self) -> int | None:
        """Return how many more Nodes its target needs after it has given Nodes back.

        Return None while it cannot be checked. A target that is not above the Nodes that it has
        always fits.
        """
        if self.fault or self.unvalidated:
            return None
        if self.target <= self.held:
            return ALWAYS_FITS
        return self.target - self.reserved + self.returning

    @property
    def lacks_at_once(self) -> int | None:
        """Return how many more Nodes to reserve now; None also while it gives back needed Nodes."""
        if self.lacks is None or self.lacks == ALWAYS_FITS:
            return self.lacks
        return self.target - self.reserved if self.is_settled else None

    def checked(self, verdict: QuotaChecked) -> "Pool":
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
        return replace(pool, reserved=max(pool.reserved, pool.needed))

    def acknowledged(self, number: int, nodes: int, *, final: bool) -> "Pool":
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
