"""Rules for NodePool objects: an orderly end."""

from nodepool.contract.events import (
    ClusterRegistered,
    CWNodePoolDeleted,
    CWNodePoolNodesRemoved,
    NodePoolDeleting,
    NodePoolValidated,
)
from nodepool.contract.messages import Message
from nodepool.contract.model import RemovalReason
from support.audit.facts import Facts, Origin, Pool, Violation


def check(facts: Facts, message: Message, origin: Origin) -> None:
    """Checks and notes an event about a NodePool as a whole."""
    match message:
        case ClusterRegistered(org=org, cluster=cluster, kubernetes=True):
            facts.agents.setdefault((org, cluster), origin.position)
        case NodePoolValidated():
            _validated(facts, message, origin)
        case NodePoolDeleting():
            facts.existing_pool(message.uid, message).deleting_since = origin.position
        case CWNodePoolNodesRemoved():
            _nodes_removed(facts, message)
        case CWNodePoolDeleted():
            _deleted(facts, message)


def _validated(facts: Facts, message: NodePoolValidated, origin: Origin) -> None:
    pool = facts.pools.get(message.uid) or _created(facts, message)
    pool.versions.add(origin.position, message)


def _created(facts: Facts, message: NodePoolValidated) -> Pool:
    ledger = (message.org, message.zone, message.spec.instance_type)
    facts.uids[message.key] = message.uid
    pool = facts.pools[message.uid] = Pool(message.key, message.uid, ledger)
    return pool


def _nodes_removed(facts: Facts, message: CWNodePoolNodesRemoved) -> None:
    pool = facts.existing_pool(message.uid, message)
    pool.emptied = pool.emptied or message.removal is RemovalReason.POOL_DELETED


def _deleted(facts: Facts, message: CWNodePoolDeleted) -> None:
    pool = facts.existing_pool(message.uid, message)
    if not pool.emptied:
        raise Violation(f"{pool.key} is deleted before its Nodes are removed")
    del facts.uids[pool.key]
