"""How many of an offering's free machines each waiting NodePool could have."""

from collections.abc import Iterator

from capacity.needed import Taking, Takings, count_giving, find_giving, find_losers, place
from capacity.pool import Pool, Share
from capacity.state import State
from nodepool.contract.conditions import Capacity
from nodepool.contract.keys import MachineKey, OfferingKey, PoolKey
from nodepool.placement.claims import Claimant
from nodepool.placement.line import Count, Line
from nodepool.placement.plan import hold_back, meet, needs, pass_over, take_turns


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
    claims = _serve(state, key, failed, own)
    stock = state.stock(key)
    operator = max(0, stock.outstanding - stock.count)
    coming = _promise(state, key, claims, operator, failed, own)
    claims = {each: claim for each, claim in claims.items() if each not in failed}
    giving = count_giving(state, key)
    place(state.ranking(key), claims, find_losers(state, key), operator, coming, giving, own)
    for pool_key, claim in claims.items():
        if own is not None and pool_key != own:
            continue
        share: Share | None = None
        with pass_over(pool_key, failed, own):
            share = _share_out(claim)
        if share is not None:
            yield share
    for pool_key in state.short.get(key, ()):
        pool = state.pools[pool_key]
        if pool.goal is not None and not pool.claim:
            yield Share(pool_key, Capacity.SUFFICIENT, 0)


def _share_out(claim: Taking) -> Share:
    """Return the share of a NodePool after all its turns."""
    pool = claim.pool
    reason, in_racks = reason_of(pool, claim.taken, claim.most), pool.rack_size > 1
    is_enough = reason is Capacity.SUFFICIENT
    fitting = 0 if in_racks or not is_enough else sum(claim.last.values())
    return Share(
        claim.key,
        reason,
        max(claim.taken, fitting),
        claim.first if in_racks else {},
        claim.preempted,
        0 if is_enough else claim.position,
        0 if is_enough else claim.needed,
    )


def _serve(
    state: State, key: OfferingKey, failed: dict[PoolKey, str], own: PoolKey | None
) -> dict[PoolKey, Taking]:
    """Return the claims of all NodePools that wait, which took the free machines in their turns."""
    ranking, claims = state.ranking(key), dict[PoolKey, Taking]()
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
    operator: int,
    failed: dict[PoolKey, str],
    own: PoolKey | None,
) -> int:
    """Set how many of the spot Nodes that give way are for each NodePool of class `default`.

    A machine that goes to triage afterwards is for no NodePool. An operator comes first, for the
    `operator` machines that are still to be reclaimed and are not free. Return how many come for
    the operator or for nobody; the latter are counted only if they fit everybody.
    """
    keys = sorted(find_giving(state, key))
    if not keys:
        return 0
    ranking, promised = state.ranking(key), list[MachineKey]()
    taken = {each: claim.taken for each, claim in claims.items()}
    before, coming = dict[PoolKey, int](), 0
    found = needs(ranking, state.pools, operator, taken)
    open_needs = [need for need in found if need.beneficiary not in failed]
    if wiping := tuple(state.stock(key).wiping):  # No Node gives way for what these machines meet.
        met = meet(open_needs, state.inventory.line_of(wiping), failed, own)
        open_needs = [need.without(len(machines)) for need, machines in met]
    for need, machines in meet(open_needs, state.inventory.line_of(keys), failed, own):
        if need.beneficiary is None:
            coming += len(machines)
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
    return coming if ranking.choosy else coming + len(keys) - len(promised)
