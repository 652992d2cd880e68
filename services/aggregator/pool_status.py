"""The status of a NodePool in the read model."""

from collections.abc import Mapping

from aggregator import status
from aggregator.objects import NodePoolObject
from aggregator.profiles import other_profiles, profile_of
from nodepool.contract.moments import rfc3339

Document = Mapping[str, object]


def pool_status(pool: NodePoolObject, *, show_deprecated: bool) -> Document:
    """Return the status with its conditions, the deprecated conditions included or not."""
    shown = status.conditions(pool, show_deprecated=show_deprecated)
    return {
        "conditions": [condition.document() for condition in shown],
        "currentNodes": pool.current,
        "grantedNodes": pool.grant,
        "inProgress": pool.in_progress,
        **status.observed(pool),
        **_profiles(pool),
        **_racks(pool),
        **_queue(pool),
        **_origin(pool),
    }


def _origin(pool: NodePoolObject) -> Document:
    """Return when the spec was stored, why by the autoscaler, and when anything came of it last."""
    moments = {"specified": pool.specified, "progressed": pool.progressed}
    found = {name: rfc3339(moment) for name, moment in moments.items() if moment is not None}
    return {**found, **status.autoscaled(pool)}


def _profiles(pool: NodePoolObject) -> Document:
    """Return the active profile, and how many Nodes were booted with which other profiles."""
    active = profile_of(pool.spec)
    others = other_profiles(pool.profiles, active)
    return {"nodeProfile": active, **({"otherNodeProfiles": others} if others else {})}


def _queue(pool: NodePoolObject) -> Document:
    """Return what the NodePool waits for in a queue for machines; nothing if it does not wait."""
    found = {
        "queuedNodes": pool.queued,
        "awaitedSpotNodes": pool.spot_awaited,
        "queuePosition": pool.queue_position,
        "machinesNeeded": pool.machines_needed,
        "missingNodes": pool.missing,
    }
    return {name: number for name, number in found.items() if number}


def _racks(pool: NodePoolObject) -> Document:
    """Return the counts in racks, of a type that comes in racks: whole racks, and all awaited."""
    size = pool.spec.rack_size
    if not size:
        return {}
    counts = {
        "target": pool.spec.target // size,
        "current": sum(count // size for count in pool.domains.values()),
        "queued": -(-pool.queued // size),
    }
    return {"rackStatus": counts}
