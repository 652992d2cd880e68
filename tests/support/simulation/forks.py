"""Copies of a world: what happens in a copy leaves the world as it is."""

from nodepool.engine.replica import Replica
from nodepool.engine.world import Host, Log, World
from nodepool.service import AnyService


def fork(world: World) -> World:
    """Return a copy of a world with one replica of each service, which has read all.

    States and entries are values, so that the copy shares them and costs as much as two lists.
    """
    log = Log(world.log.clock, list(world.log.entries), dict(world.log.last), world.log.id)
    copy = World(world.services, 0, log)
    copy.hosts = [_caught_up(world, service, log) for service in world.services]
    copy.run_until_idle()
    return copy


def _caught_up(world: World, service: AnyService, log: Log) -> Host:
    """Return a replica of a service that starts where that of the world is the furthest."""
    hosts = (host for host in world.hosts if host.service.name == service.name)
    first = max((host.replica for host in hosts), key=lambda replica: replica.committed)
    replica = Replica(service, first.safe, first.committed, first.expected_sequence, log=log.id)
    return Host(service, replica, first.committed)
