"""However the quota service and an allocator interleave, the limit is never exceeded."""

from collections.abc import Callable, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from nodepool.contract.conditions import Quota
from nodepool.contract.events import Wake
from nodepool.contract.messages import Message
from nodepool.state.work import IMMEDIATELY
from quota import Hears
from quota.state import Pool
from unit.quota_models import AllocatorModel, ValidatorModel
from unit.quota_service import QuotaService, limit_of

POOLS = ("a", "b", "c")


class Interleaving:
    """One log that the quota service and an allocator each read at a pace of their own.

    Each action is about one NodePool and has a number, which it may leave unused. An action that is
    impossible, as the removal of a Node where there is none, does nothing.
    """

    def __init__(self, limit: int | None) -> None:
        self.log = list[Message]()
        self.quota, self.quota_position = QuotaService(), 0
        self.allocator, self.allocator_position = AllocatorModel(), 0
        self.validator = ValidatorModel()
        if limit is not None:
            self.set_limit("", limit)

    # Actions.

    def set_limit(self, _pool: str, number: int) -> None:
        """The limit is set to this number."""
        self.log.append(limit_of(number))

    def specify(self, pool: str, number: int) -> None:
        """The NodePool is created or changed, with this target."""
        self.log.extend(self.validator.specify(pool, number))

    def invalidate(self, pool: str, number: int) -> None:
        """The spec of the NodePool becomes invalid."""
        self.log.extend(self.validator.invalidate(pool, number))

    def delete(self, pool: str, _number: int) -> None:
        """The deletion of the NodePool begins."""
        self.log.extend(self.validator.delete(pool))

    def forget(self, pool: str, _number: int) -> None:
        """The deletion of the NodePool ends, if its Nodes are gone."""
        emptied = self.allocator.pool(pool)
        if emptied.is_emptied:
            self.log.extend(self.validator.forget(pool, emptied.uid))

    def assign(self, pool: str, number: int) -> None:
        """The NodePool gets so many Nodes, if the allocator knows of a grant for them."""
        self.log.extend(self.allocator.assign(pool, number))

    def remove(self, pool: str, number: int) -> None:
        """The NodePool loses so many Nodes."""
        self.log.extend(self.allocator.remove(pool, number))

    def quota_reads(self, _pool: str, number: int) -> None:
        """The quota service reads so many messages; it is woken where it has read them all."""
        for _ in range(number):
            if self.quota_position < len(self.log):
                message = self.log[self.quota_position]
                self.quota_position += 1
                if isinstance(message, Hears | Wake):
                    self._process(message)
            elif self.quota.has_work:
                self.log.append(Wake(service="quota", due=IMMEDIATELY))

    def allocator_reads(self, _pool: str, number: int) -> None:
        """The allocator reads so many messages."""
        for message in self.log[self.allocator_position : self.allocator_position + number]:
            self.allocator_position += 1
            self.log.extend(self.allocator.process(message))

    def both_read(self, pool: str, number: int) -> None:
        """The quota service reads so many messages, and then the allocator does."""
        self.quota_reads(pool, number)
        self.allocator_reads(pool, number)

    # Until nothing is left to do.

    def advance(self) -> bool:
        """Lets both read a message, and Nodes leave that are too many; False if nothing moved."""
        before = len(self.log) + self.quota_position + self.allocator_position
        self.both_read("", 1)
        for name, pool in self.allocator.pools.items():
            if pool.held > pool.may_hold:
                self.remove(name, 1)
            self.forget(name, 0)
        return before != len(self.log) + self.quota_position + self.allocator_position

    def _process(self, message: Hears | Wake) -> None:
        """The quota service processes a message, and keeps its books and the limit."""
        before = self.quota.ledger.used
        self.log.extend(self.quota.process(message))

        ledger = self.quota.ledger
        reserved = [pool.reserved for pool in self.quota.state.pools.values()]
        assert ledger.used == sum(reserved)
        assert ledger.holders == sum(count > 0 for count in reserved)
        assert ledger.used <= max(ledger.limit or 0, before), "more is granted than the limit"


Action = tuple[Callable[[Interleaving, str, int], None], str, int]
"""What happens, to which NodePool, and with which number."""
KINDS: tuple[Callable[[Interleaving, str, int], None], ...] = (
    *(Interleaving.set_limit, Interleaving.specify, Interleaving.invalidate),
    *(Interleaving.delete, Interleaving.forget, Interleaving.assign, Interleaving.remove),
    *(Interleaving.quota_reads, Interleaving.allocator_reads, Interleaving.both_read),
)

limits = st.sampled_from((None, 8))
actions: st.SearchStrategy[list[Action]] = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from(POOLS), st.integers(0, 8)),
    min_size=20,
    max_size=80,
)


@settings(max_examples=300)
@given(limits, actions)
def test_whatever_the_allocator_assigns_or_may_assign_is_reserved_within_the_limit(
    limit: int | None, actions: Sequence[Action]
) -> None:
    interleaving = Interleaving(limit)

    for act, pool, number in actions:
        act(interleaving, pool, number)
        assert interleaving.allocator.relied_on <= interleaving.quota.ledger.used
    while interleaving.advance():
        assert interleaving.allocator.relied_on <= interleaving.quota.ledger.used


@settings(max_examples=300)
@given(limits, actions)
def test_when_all_is_processed_exactly_those_pools_wait_whose_target_does_not_fit(
    limit: int | None, actions: Sequence[Action]
) -> None:
    interleaving = Interleaving(limit)
    for act, pool_name, number in actions:
        act(interleaving, pool_name, number)

    while interleaving.advance():
        pass

    state = interleaving.quota.state
    for key, pool in state.pools.items():
        _, _, name = key.split("/")
        assert pool.held == interleaving.allocator.pool(name).held
        if pool.eligible:
            waits = key in state.ledgers[pool.ledger].waiting
            fits = fits_beside_others(interleaving.quota, pool)
            assert (pool.reason is Quota.UNDER) is fits, key
            assert waits is not fits, key
            assert pool.granted <= pool.target
            assert pool.reserved == max(pool.granted, pool.held)


def fits_beside_others(quota: QuotaService, pool: Pool) -> bool:
    """Whether a NodePool's target fits under the limit beside what others have reserved."""
    ledger = quota.ledger
    others = ledger.used - pool.reserved
    return ledger.limit is not None and others + pool.target <= ledger.limit
