"""Summarizes a NodePool for the NodePools that share its quota and its machines."""

from itertools import takewhile

from nodepool.explanation.facts import Facts, Peer
from nodepool.explanation.leaving import is_blocked, staying_racks
from nodepool.explanation.node_facts import NodeFacts
from nodepool.explanation.outlook import gets_none, may_be_lost
from nodepool.explanation.unanswered import due_since, steps_due, undetermined_check


def peer_of(name: str, own: Facts) -> Peer:
    """Return a NodePool, named `<cluster>/<name>`, as others see it that share its quota."""
    quota, capacity = own.checks.get("Quota"), own.checks.get("Capacity")
    stays = own.is_valid and not own.deleting
    # A NodePool that is to shrink, or is not valid, gets no Node in the place of a lost Node.
    replaces = stays and own.held <= own.allowed
    # A NodePool lacks no quota up to its grant, whatever its limit is.
    is_granted = own.target <= own.reserved
    waits_for_quota = quota is not None and quota.status == "False" and not is_granted
    is_unchecked = stays and undetermined_check(own) == "Quota"
    return Peer(
        name=name,
        held=own.held,
        reserved=own.reserved,
        spot=own.spot,
        target=own.target,
        leaving=sum(node.removal != "" for node in own.nodes),
        can_give_way=sum(map(_can_give_way, own.counted_nodes)) if own.spot else 0,
        yields=not (own.deleting or own.autoscaling or gets_none(own)),
        keeps=_count_kept(own),
        has_silent=any(node.is_silent for node in own.counted_nodes),
        may_lose=replaces and any(may_be_lost(own, node) for node in own.counted_nodes),
        returning=_count_returning(own),
        deleting=own.deleting,
        may_grow=max(0, own.max_nodes - own.target) if stays else 0,
        waits_for_quota=stays and waits_for_quota,
        waits_for_machines=stays and capacity is not None and capacity.status == "False",
        queue_position=own.queue_position,
        missing=own.missing,
        position=own.position,
        unchecked_since=due_since(own) if is_unchecked else None,
        steps=tuple(steps_due(own)),
    )


def _can_give_way(node: NodeFacts) -> bool:
    """Return whether the machine of a spot Node comes back soon once the Node is preempted."""
    is_usable = node.phase == "production" or not node.registered
    return is_usable and not (node.removal or node.problems)


def _count_returning(facts: Facts) -> int:
    """Return how many Nodes leave a NodePool, now or once they are idle, without being replaced.

    No Node is chosen to leave a NodePool that is not valid.
    """
    if facts.deleting:
        return facts.reserved
    return max(0, facts.held - facts.wanted) if facts.is_valid else 0


def _count_kept(facts: Facts) -> int:
    """Return how many Nodes a lower target leaves a NodePool with for now.

    A Node that leaves already, and that Pods block, leaves in the place of an idle Node. A Node
    that does not answer leaves before an idle Node, once its time to answer is over. With
    PreferIdle, which Nodes leave does not depend on whether Pods block them.
    """
    staying = [node for node in facts.counted_nodes if not node.removal]
    delayed = [node for node in facts.counted_nodes if node.is_silent or is_blocked(node)]
    if delayed:
        return len(staying) + sum(node.removal != "" for node in delayed)
    if not (facts.idle_only or any(node.blocking_count for node in staying)):
        return 0
    racks = sorted((length, rack.to_empty) for length, rack in staying_racks(facts))
    return len(staying) - sum(length for length, _ in takewhile(lambda rack: not rack[1], racks))
