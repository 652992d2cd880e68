"""Copies of a world: what happens in a copy leaves the world as it is."""

from dataclasses import replace

from nodepool.engine.replica import Replica
from nodepool.engine.world import Host, Log, World
from nodepool.service import AnyService
from support.simulation.reading import Decoded, SharedReading


def fork(world: World) -> World:
    """Return a copy of a world with one replica of each service, which has read all.

    States and entries are values, so that the copy shares them and costs as much as two lists.
    """
    log = Log(world.log.clock, list(world.log.entries), dict(world.log.last), world.log.id)
    decoded: dict[int, Decoded] = {}  # Its positions hold other entries from here on.
    services = [
        replace(service, decoded=decoded) if isinstance(service, SharedReading) else service
        for service in world.services
    ]
    copy = World(services, 0, log)
    copy.hosts = [_caught_up(world, service, log) for service in services]
    copy.run_until_idle()
    return copy


def _caught_up(world: World, service: AnyService, log: Log) -> Host:
    """Return a replica of a service that starts where that of the world is the furthest."""
    hosts = (host for host in world.hosts if host.service.name == service.name)
    first = max((host.replica for host in hosts), key=lambda replica: replica.committed)
    replica = Replica(service, first.safe, first.committed, first.expected_sequence, log=log.id)
    return Host(service, replica, first.committed)
