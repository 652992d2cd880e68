"""However the quota service and an allocator interleave, these hold after every message."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, pairwise, repeat

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nodepool.contract.conditions import Quota
from nodepool.contract.events import QuotaChecked, QuotaReleased, Wake
from nodepool.contract.keys import PoolKey
from nodepool.contract.messages import Message
from nodepool.service import Context
from nodepool.state.values import replace
from nodepool.state.work import IMMEDIATELY, RETRY_AFTER
from quota import Hears, Says
from quota.decide import release_nodes
from quota.ledger import Ledger
from quota.pool import Grant, Pool
from quota.state import State, evolve
from quota.verdict import verdict
from support.examples import tried
from unit.quota_models import AllocatorModel, LineModel, ValidatorModel
from unit.quota_service import LEDGER, QuotaService, limit_of, specified, unset

POOLS = ("a", "b", "c")


class Interleaving:
    """One log that the quota service and an allocator each read at a pace of their own.

    Each action is about one NodePool and has a number, which it may leave unused. An action that is
    impossible, as the removal of a Node where there is none, does nothing.

    broken: the NodePools whose check raises an exception, and whose release does.
    """

    def __init__(self, limit: int | None) -> None:
        self.log = list[Message]()
        self.quota, self.quota_position = QuotaService(), 0
        self.allocator, self.allocator_position = AllocatorModel(), 0
        self.validator = ValidatorModel()
        self.line = LineModel()
        self.broken = set[str]()
        if limit is not None:
            self.set_limit("", limit)

    # Actions.

    def set_limit(self, _pool: str, number: int) -> None:
        """The limit is set to this number."""
        self.log.append(limit_of(number))

    def unset_limit(self, _pool: str, _number: int) -> None:
        """The limit is unset."""
        self.log.append(unset())

    def specify(self, pool: str, number: int) -> None:
        """The NodePool is created or changed, with this target."""
        self.log.extend(self.validator.specify(pool, number))

    def relabel(self, pool: str, _number: int) -> None:
        """The NodePool has a new version with the same spec."""
        self.log.extend(self.validator.relabel(pool))

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

    def break_check(self, pool: str, _number: int) -> None:
        """From now on the check of the NodePool fails, and its release."""
        self.broken.add(pool)

    def mend_check(self, pool: str, _number: int) -> None:
        """From now on the check of the NodePool succeeds, and its release."""
        self.broken.discard(pool)

    def time_passes(self, _pool: str, number: int) -> None:
        """So many retries of a failed check fall due."""
        self.quota.now += number * RETRY_AFTER[-1]

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

    def finish(self) -> None:
        """Lets everything happen that is still to happen."""
        while self.advance():
            pass
        self.broken.clear()
        for _ in range(2):
            self.time_passes("", 1)
            while self.advance():
                pass

    def advance(self) -> bool:
        """Lets both read a message, and Nodes leave that are too many; False if nothing moved."""
        before = len(self.log) + self.quota_position + self.allocator_position
        self.both_read("", 1)
        for name, pool in self.allocator.pools.items():
            if pool.surplus > 0:
                self.remove(name, 1)
            self.forget(name, 0)
        return before != len(self.log) + self.quota_position + self.allocator_position

    def _process(self, message: Hears | Wake) -> None:
        """The quota service processes a message, and keeps its books, the limit and the order."""
        before = self.quota.state
        with failing_checks(self.broken):
            outputs = self.quota.outputs_of(message)
        self.log.extend(outputs)

        check_books(self.quota.state)
        limit = self.quota.ledger.limit or 0
        assert self.quota.ledger.used <= max(limit, before.ledger(LEDGER).used), "over the limit"
        self._check_order(before, message, outputs)

    def _check_order(self, state: State, message: Message, outputs: Sequence[Message]) -> None:
        """No NodePool is granted more while one that waits longer would fit as well."""
        context = Context(self.quota.position, self.quota.now)
        for each in (message, *outputs):
            if isinstance(each, QuotaChecked) and each.granted > state.pools[each.key].granted:
                before = self.line.names[: self.line.names.index(each.pool)]
                pools = [state.pools[key] for key in state.pools if key.split("/")[2] in before]
                fitting = [pool for pool in pools if fits(pool, state.ledger(LEDGER))]
                assert not [pool.key for pool in fitting if not pool.fault], each
            self.line.process(each)
            if isinstance(each, Hears | Says):
                state = evolve(state, each, context)
        assert self.line.names == self.quota.line


class Lending(Interleaving):
    """One log in which Nodes are reserved for the control plane, too.

    Nodes that come back count beyond the limit, and are room for their own NodePool only. So only
    the books are checked after each message, and that no verdict follows itself.
    """

    def lend(self, pool: str, number: int) -> None:
        """Reserve so many Nodes of the NodePool for the control plane."""
        for _ in range(number):
            self.log.extend(self.allocator.lend(pool))

    def take_back(self, pool: str, number: int) -> None:
        """Reserve so many Nodes of the NodePool for the organisation again."""
        for _ in range(number):
            self.log.extend(self.allocator.take_back(pool))

    def rest(self, _pool: str, _number: int) -> None:
        """Let both services read all messages, and the allocator assign and remove what it may."""
        while self.advance():
            for name in POOLS:
                self.assign(name, 1)

    def _process(self, message: Hears | Wake) -> None:
        outputs = self.quota.outputs_of(message)
        self.log.extend(outputs)
        check_books(self.quota.state)
        assert all(before != after for before, after in pairwise(outputs))


def check_books(state: State) -> None:
    """What is counted of a ledger is what its NodePools are, and nothing is kept of the others."""
    ledger = state.ledger(LEDGER)
    pools = list(state.pools.values())
    reserved = [pool.reserved for pool in pools]
    eligible = {pool.key for pool in pools if pool.eligible}
    assert ledger.used == sum(reserved)
    assert ledger.holders == sum(count > 0 for count in reserved)
    assert dict(ledger.own_room) == {pool.key: pool.own_room for pool in pools if pool.own_room}
    assert set(ledger.pools) == eligible
    assert {*ledger.waiting, *ledger.unchecked, *ledger.exceeding} <= eligible
    unused = {pool.key for pool in pools if not (pool.eligible or pool.reserved or pool.away)}
    assert unused <= set(state.work.failures), "kept although nothing of it is to be tried again"
    is_used = len(pools) > len(unused) or ledger.limit is not None
    assert (LEDGER in state.ledgers) is is_used


@contextmanager
def failing_checks(broken: set[str]) -> Iterator[None]:
    """In here, check and release of each NodePool with one of these names raise an exception."""

    def check(pool: Pool, ledger: Ledger) -> QuotaChecked:
        _raise(pool)
        return verdict(pool, ledger)

    def release(state: State, pool: Pool) -> QuotaReleased:
        _raise(pool)
        return release_nodes(state, pool)

    def _raise(pool: Pool) -> None:
        if pool.key.split("/")[2] in broken:
            raise LookupError(pool.key)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("quota.checks.verdict", check)
        patch.setattr("quota.decide.release_nodes", release)
        yield


def fits(pool: Pool, ledger: Ledger) -> bool:
    """Whether a NodePool has all the Nodes that it wants, or they fit beside the other pools."""
    if ledger.limit is None:
        return False
    others = ledger.used - pool.reserved
    return pool.target <= pool.held or others + pool.target <= ledger.limit


Action = tuple[Callable[[Interleaving, str, int], None], str, int]
"""What happens, to which NodePool, and with which number."""
KINDS: tuple[Callable[[Interleaving, str, int], None], ...] = (
    *(Interleaving.set_limit, Interleaving.unset_limit, Interleaving.specify),
    *(Interleaving.specify, Interleaving.relabel, Interleaving.invalidate),
    *(Interleaving.delete, Interleaving.forget, Interleaving.assign, Interleaving.remove),
    *(Interleaving.break_check, Interleaving.mend_check, Interleaving.time_passes),
    *(Interleaving.quota_reads, Interleaving.allocator_reads, Interleaving.both_read),
)

limits = st.sampled_from((None, 8))
actions: st.SearchStrategy[list[Action]] = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from(POOLS), st.integers(0, 8)),
    min_size=20,
    max_size=80,
)


@tried(60)
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


@tried(60)
@given(limits, actions)
def test_when_all_is_processed_every_pool_has_the_verdict_that_holds_now(
    limit: int | None, actions: Sequence[Action]
) -> None:
    interleaving = Interleaving(limit)
    for act, pool_name, number in actions:
        act(interleaving, pool_name, number)

    interleaving.finish()

    quota = interleaving.quota
    assert quota.due is None
    assert (quota.ledger.unchecked.head, quota.ledger.exceeding.head) == (None, None)
    for key, pool in quota.state.pools.items():
        name = key.split("/")[2]
        assert pool.held == interleaving.allocator.pool(name).held
        assert pool.reserved == pool.needed == max(pool.granted, pool.held)
        if pool.eligible:
            now = verdict(pool, quota.ledger)
            assert (pool.reason is Quota.UNDER) is fits(pool, quota.ledger), key
            assert (name in quota.line) is not fits(pool, quota.ledger), key
            assert (pool.reason, pool.message) == (now.reason, now.message)
            assert min(pool.held, pool.target) <= pool.granted <= pool.target
    assert dict(quota.state.work.failures) == {}
    assert dict(quota.state.work.deadlines.moments) == {}


LENDING: tuple[Callable[[Lending, str, int], None], ...] = (
    *(Lending.set_limit, Lending.specify, Lending.relabel, Lending.assign, Lending.remove),
    *(Lending.lend, Lending.take_back, Lending.invalidate, Lending.quota_reads),
    *(Lending.allocator_reads, Lending.both_read, Lending.rest, Lending.rest),
)


@tried(100)
@given(
    st.lists(
        st.tuples(st.sampled_from(LENDING), st.sampled_from(POOLS[:2]), st.integers(1, 6)),
        min_size=20,
        max_size=60,
    )
)
@example(
    [
        *((Lending.specify, "a", 3), (Lending.rest, "a", 1), (Lending.lend, "a", 1)),
        *((Lending.specify, "a", 6), (Lending.both_read, "a", 6)),
        *((Lending.take_back, "a", 1), (Lending.assign, "a", 1)),
    ]
)
@example(
    [
        *((Lending.set_limit, "", 3), (Lending.specify, "a", 3), (Lending.rest, "a", 1)),
        *((Lending.lend, "a", 1), (Lending.rest, "a", 1), (Lending.specify, "b", 3)),
        *((Lending.specify, "a", 5), (Lending.rest, "a", 1), (Lending.take_back, "a", 1)),
        *((Lending.quota_reads, "a", 6), (Lending.set_limit, "", 6)),
    ]
)
def test_when_nodes_have_come_back_every_pool_has_the_verdict_that_holds_now(
    actions: Sequence[tuple[Callable[[Lending, str, int], None], str, int]],
) -> None:
    lending = Lending(4)
    for act, pool_name, number in actions:
        act(lending, pool_name, number)

    lending.finish()

    quota = lending.quota
    assert (quota.due, quota.ledger.next()) == (None, None)
    for key, pool in quota.state.pools.items():
        assert pool.held == lending.allocator.pool(key.split("/")[2]).held
        if pool.eligible:
            now = verdict(pool, quota.ledger)
            assert (pool.reason, pool.message) == (now.reason, now.message)
            assert (pool.granted, pool.beyond) == (now.granted, 0)
            assert pool.held <= pool.granted


@tried(60)
@given(limits, actions)
def test_when_all_pools_are_gone_and_the_limit_is_unset_nothing_is_left(
    limit: int | None, actions: Sequence[Action]
) -> None:
    interleaving = Interleaving(limit)
    for act, pool_name, number in actions:
        act(interleaving, pool_name, number)

    for pool_name in POOLS:
        interleaving.delete(pool_name, 0)
    interleaving.unset_limit("", 0)
    interleaving.finish()

    assert interleaving.quota.state == State()


def grants_after(
    limits: tuple[int, int], sizes: Sequence[tuple[int, int]], choices: Sequence[int]
) -> dict[str, int]:
    """Return what each pool is granted in the end after a limit is lowered, by its name.

    limits: the limit before and after.
    sizes: the target of each pool, and how many Nodes it has at most when the limit is lowered.
    choices: which of the outstanding acknowledgements comes next, each time.
    """
    quota, allocator = QuotaService(), AllocatorModel()
    quota.set_limit(limits[0])
    for number, (target, held) in enumerate(sizes):
        version = specified(f"p{number}", target)
        outstanding = [
            each
            for message in (version, *quota.hears(version))
            for each in allocator.process(message)
        ]
        quota.hears(*allocator.assign(f"p{number}", held))
    outputs = quota.set_limit(limits[1])
    for choice in chain(choices, repeat(0)):
        outstanding += [each for message in outputs for each in allocator.process(message)]
        if not outstanding:
            break
        outputs = quota.hears(outstanding.pop(choice % len(outstanding)))
    return {key: pool.granted for key, pool in quota.state.pools.items()}


@tried(100)
@given(
    st.tuples(st.integers(12, 16), st.integers(4, 11)),
    st.lists(st.tuples(st.integers(1, 8), st.integers(0, 1)), min_size=4, max_size=6),
    st.lists(st.integers(0, 5), min_size=4, max_size=8),
)
@example((16, 10), [(4, 0), (1, 0), (6, 0), (8, 0)], [2])
def test_the_order_in_which_grants_are_confirmed_does_not_decide_who_is_served(
    limits: tuple[int, int], sizes: Sequence[tuple[int, int]], choices: Sequence[int]
) -> None:
    assert grants_after(limits, sizes, choices) == grants_after(limits, sizes, [])


def waiting_pool(number: int, granted: int, *, held: int, given_back: int, lacks: int) -> Pool:
    """A NodePool that waits for more Nodes than its grant.

    held: how many Nodes it had when it was granted fewer, which the allocator has not confirmed.
    given_back: how many more Nodes came back from the control plane since.
    """
    grants = (Grant(1, max(held, granted)), Grant(2, granted))
    key, target = PoolKey(f"acme/prod/p{number}"), granted + lacks
    pool = Pool(key, "", LEDGER, target=target, eligible=True, grants=grants, reason=Quota.OVER)
    pool = pool.with_held(held).with_held(pool.needed + given_back if given_back else held)
    return replace(pool, reserved=pool.needed)


@tried(300)
@given(
    st.integers(0, 16),
    st.lists(st.tuples(*[st.integers(0, 4)] * 4), min_size=1, max_size=5),
)
@example(6, [(0, 0, 0, 3), (3, 3, 1, 2)])
def test_the_nodepool_that_is_served_next_is_granted_its_target(
    limit: int, sizes: Sequence[tuple[int, int, int, int]]
) -> None:
    # given NodePools in line, some of which give Nodes back or have Nodes that no grant covers
    ledger, pools = Ledger(limit=limit), dict[PoolKey, Pool]()
    for number, (granted, held, given_back, lacks) in enumerate(sizes):
        pool = waiting_pool(number, granted, held=held, given_back=given_back, lacks=lacks)
        ledger = ledger.with_pool(0, pool).waits(pool, waits=True)
        pools[pool.key] = pool

    served = ledger.next()

    # then the order of the line and the verdict agree, so that no NodePool is checked in vain
    fitting = [key for key, pool in pools.items() if verdict(pool, ledger).reason is Quota.UNDER]
    assert (served is None) is not bool(fitting)
    assert served is None or served in fitting
