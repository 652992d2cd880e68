"""How many of an offering's free machines each waiting NodePool could have."""

from collections.abc import Iterator

from capacity.pool import Pool, Share
from capacity.state import State
from nodepool.contract.conditions import Capacity
from nodepool.contract.keys import MachineKey, OfferingKey, PoolKey
from nodepool.placement.claims import Claimant
from nodepool.placement.line import Count, Line
from nodepool.placement.plan import Part, hold_back, meet, needs, pass_over, take_turns
from nodepool.placement.ranking import Ranking


class Taking(Part):
    """What a NodePool takes of the free machines, and what comes for it.

    `Part` describes what it takes: `taken`, `most`, `first` and `last`.

    preempted: how many spot Nodes give way to it.
    losing: how many of its Nodes leave for certain: they give way, or are replaced as unhealthy.
    misfits: how many of the spot Nodes that give way to what is served before it do not satisfy its
        affinity. What is served before it may take other machines first, and leave it these.
    position: the position of its first missing Node among all missing Nodes.
    needed: how many machines must become free for it and for all that is served before it, which an
        operator is too.
    """

    compares = True
    preempted = losing = misfits = position = needed = 0

    @property
    def share(self) -> Share:
        """The share of the NodePool after all its turns."""
        reason, in_racks = reason_of(self.pool, self.taken, self.most), self.pool.rack_size > 1
        is_enough = reason is Capacity.SUFFICIENT
        fitting = 0 if in_racks or not is_enough else sum(self.last.values())
        return Share(
            self.key,
            reason,
            max(self.taken, fitting),
            self.first if in_racks else {},
            self.preempted,
            0 if is_enough else self.position,
            0 if is_enough else self.needed,
        )


Takings = dict[PoolKey, Taking]


def reason_of(pool: Claimant, taken: int, most: int) -> Capacity:
    """Return the reason of a verdict from the machines that a NodePool could take now.

    taken, most: how many it could take with its affinity, and without; see `Part`.

    They are compared with the Nodes that it still lacks: its grant or its target, whichever is
    smaller, minus the Nodes that it has (`Claimant.claim`). While machines are short, verdicts are
    made again after assignments, too: see `supply_changed`.
    """
    if taken >= pool.claim:
        return Capacity.SUFFICIENT
    affinity = most > taken
    if taken:
        return Capacity.PARTIAL_NODE_AFFINITY if affinity else Capacity.PARTIAL
    return Capacity.NONE_AVAILABLE_NODE_AFFINITY if affinity else Capacity.NONE_AVAILABLE


def share_of(state: State, pool: Pool) -> Share:
    """Return what a NodePool can have, after the NodePools that are served before it."""
    ranking, free = state.ranking(pool.offering), state.stock(pool.offering).free_for_pools
    if not pool.claim:
        return Share(pool.key, Capacity.SUFFICIENT, free)
    if free >= ranking.demand and not ranking.choosy:
        return Share(pool.key, Capacity.SUFFICIENT, free - ranking.demand + pool.claim)
    found = shares(state, pool.offering, {}, pool.key)
    return next(share for share in found if share.key == pool.key)


def shares(
    state: State, key: OfferingKey, failed: dict[PoolKey, str], own: PoolKey | None = None
) -> Iterator[Share]:
    """Return the share of each NodePool that wants machines, or that wanted more than there were.

    NodePools that wait are served in their order from the free machines, after an operator.
    NodePools that were short and want no more Nodes have enough. A NodePool that fails is passed
    over, and `failed` then has the cause; the exception of the NodePool `own` is raised.
    """
    ranking = state.ranking(key)
    claims = _serve(state, key, failed, own)
    _count_losses(state, key, claims)
    operator = _promise(state, key, claims, failed, own)
    claims = {each: claim for each, claim in claims.items() if each not in failed}
    _place(ranking, claims, operator)
    for pool_key, claim in claims.items():
        if own is not None and pool_key != own:
            continue
        share: Share | None = None
        with pass_over(pool_key, failed, own):
            share = claim.share
        if share is not None:
            yield share
    for pool_key in state.short.get(key, ()):
        pool = state.pools[pool_key]
        if pool.goal is not None and not pool.claim:
            yield Share(pool_key, Capacity.SUFFICIENT, 0)


def _serve(
    state: State, key: OfferingKey, failed: dict[PoolKey, str], own: PoolKey | None
) -> Takings:
    """Return the claims of all NodePools that wait, which took the free machines in their turns."""
    ranking, claims = state.ranking(key), Takings()
    line: Line = Count(state.stock(key).free_for_pools)
    if ranking.choosy:
        line = state.inventory.line(key)
        hold_back(state.inventory, key, line)

    def take(pool_key: PoolKey, count: int) -> int:
        claim = claims.get(pool_key)
        if claim is None:
            claim = claims[pool_key] = Taking(state.pools[pool_key])
        return claim.take(line, count)

    # The turns after the last free machine only tell the order of the shares.
    take_turns(ranking, take, None if own is None else line, failed, own)
    for pool_key in ranking.waiting:
        if pool_key not in claims:
            claims[pool_key] = Taking(state.pools[pool_key])
    return claims


def _promise(
    state: State,
    key: OfferingKey,
    claims: Takings,
    failed: dict[PoolKey, str],
    own: PoolKey | None,
) -> int:
    """Set how many of the spot Nodes that give way are for each NodePool of class `default`.

    A machine that goes to triage afterwards is for no NodePool. An operator comes first, for the
    machines that are still to be reclaimed and are not free. Return how many the operator still
    lacks then; a negative number counts the machines that come for nobody, and fit everybody.
    """
    giving_way, broken = state.giving_way.get(key, ()), state.leaving.to_triage
    keys = sorted(each for each in giving_way if each not in broken)
    stock, taken = state.stock(key), {each: claim.taken for each, claim in claims.items()}
    operator = max(0, stock.outstanding - stock.count)
    if not keys:
        return operator
    ranking, promised = state.ranking(key), list[MachineKey]()
    before = dict[PoolKey, int]()
    found = needs(ranking, state.pools, operator, taken)
    open_needs = [need for need in found if need.beneficiary not in failed]
    for need, machines in meet(open_needs, state.inventory.line_of(keys), failed, own):
        if need.beneficiary is None:
            operator -= len(machines)
        else:
            claims[need.beneficiary].preempted += len(machines)
            before[need.beneficiary] = len(promised)
        promised += machines
    for each, claim in claims.items():
        others, affinity = promised[: before.get(each)], claim.pool.spec.affinity
        if others and affinity is not None:
            with pass_over(each, failed, own):
                fitting = state.inventory.line_of(others).fitting(affinity)
                claim.misfits = len(others) - sum(fitting.values())
    return operator if ranking.choosy else operator - (len(keys) - len(promised))


def _count_losses(state: State, key: OfferingKey, claims: Takings) -> None:
    """Set how many Nodes each NodePool loses for certain, whoever gets their machines."""
    for each in {*state.giving_way.get(key, ()), *state.leaving.lost(key)}:
        loser = claims.get(PoolKey(state.inventory.machines[each].holder))
        if loser is not None and each not in state.reserved:
            loser.losing += 1


def _place(ranking: Ranking, claims: Takings, operator: int) -> None:
    """Set the positions of all missing Nodes, and how many machines each NodePool waits for.

    A NodePool waits for as many machines as its last position says, without the machines that come
    for it and for the NodePools before it. A NodePool that loses a Node for certain keeps its
    place, and lacks one Node more from then on. If it has all Nodes before it loses one, the loss
    begins a new wait behind all that waits already.

    operator: how many machines an operator gets first; negative if machines come for nobody.
    """
    if all(claim.taken >= claim.lacks for claim in claims.values()):
        return
    ahead, coming, spare = 0, -operator, max(0, -operator)
    losers = dict[PoolKey, int]()
    for key, count in ranking.turns():
        claim = claims.get(key)
        if claim is not None and not claim.position:
            claim.position = ahead + 1
            coming += claim.taken + claim.preempted - claim.losing
        ahead += count
        if claim is not None:
            unmet = claim.lacks - claim.taken - claim.preempted
            claim.needed = max(unmet - spare, ahead - coming + claim.misfits)
            if claim.losing:
                losers[key] = ahead - coming
    for key, before in losers.items():
        claims[key].needed += max(0, ahead - coming - before)
