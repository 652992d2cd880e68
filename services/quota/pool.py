"""A NodePool as far as a limit depends on it: what it wants, may have, has, and was told."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from nodepool.contract.conditions import Quota
from nodepool.contract.events import QuotaChecked
from nodepool.contract.keys import LedgerKey, PoolKey


class Grant(NamedTuple):
    """How many Nodes a NodePool may have, as checked for a generation of it."""

    generation: int
    nodes: int


class Warned(NamedTuple):
    """What the last `CWOverQuota` was about; another one is due where this differs."""

    reason: Quota
    target: int
    limit: int | None


@dataclass(frozen=True, slots=True)
class Pool:
    """A NodePool and its part in a ledger.

    wants: `target` Nodes, in this `generation`.
    eligible: whether it is valid and stays, so that it may be granted Nodes.
    deleting: whether it is on its way out.
    grants: the one that the allocator works to, as far as it is known, then those that were
        published after it, in their order; the last one is what the NodePool may have.
    held: the Nodes that it has.
    reserved: what counts against the limit for it, as it was published last.
    reason, message: the verdict that was published last; no reason before the first.
    warned: what the last warning was about; None while it is within the limit.
    fault: why its last check failed; empty where it did not.
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

    @property
    def granted(self) -> int:
        """How many Nodes it may have, as it was published last."""
        return self.grants[-1].nodes if self.grants else 0

    @property
    def needed(self) -> int:
        """What has to stay reserved: the Nodes that are there, and those that may still come."""
        return max(self.held, *(grant.nodes for grant in self.grants), 0)

    @property
    def is_releasable(self) -> bool:
        """Whether it has more reserved than it needs, or may not get anything and needs nothing."""
        return self.needed < self.reserved or not (self.needed or self.eligible)

    @property
    def lacks(self) -> int | None:
        """How many Nodes more have to be reserved for its target; None while its check fails."""
        return None if self.fault else self.target - self.reserved

    def checked(self, verdict: QuotaChecked) -> "Pool":
        """The NodePool with a verdict on it."""
        grant = Grant(verdict.generation, verdict.granted)
        grants = self.grants if self.grants[-1:] == (grant,) else _usable((*self.grants, grant))
        pool = replace(
            self,
            grants=grants,
            reason=verdict.reason,
            message=verdict.message,
            warned=None if verdict.reason is Quota.UNDER else self.warned,
            fault="",
        )
        return replace(pool, reserved=max(pool.reserved, pool.needed))

    def acknowledged(self, grant: Grant) -> "Pool":
        """The NodePool once the allocator works to this smaller grant, or to none in a deletion.

        The allocator acknowledges each grant that is smaller than what it could work to before, in
        the order in which they were published. One of nothing that was not published is its word
        that it has read of the deletion, after which it uses no grant at all.
        """
        usable = 0
        for index, each in enumerate(self.grants):
            if each == grant and each.nodes < usable:
                return replace(self, grants=_usable(self.grants[index:]))
            usable = max(usable, each.nodes)
        return replace(self, grants=()) if self.deleting and not grant.nodes else self


def _usable(grants: tuple[Grant, ...]) -> tuple[Grant, ...]:
    """The same grants; the first one says nothing more where the next is at least as large."""
    while len(grants) > 1 and grants[1].nodes >= grants[0].nodes:
        grants = grants[1:]
    return grants
