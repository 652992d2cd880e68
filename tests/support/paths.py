"""The paths of commands: the three identity tokens of their subjects."""

from nodepool.contract.keys import FLEET, UNNAMED, PoolPath
from support.constants import CLUSTER, ORG


def pool_path(pool: str) -> PoolPath:
    """To the NodePool `org/cluster/pool`, of which the first two may be left out."""
    *before, name = pool.split("/")
    org, cluster = before or (ORG, CLUSTER)
    return org, cluster, name


def org_path(org: str) -> PoolPath:
    """To an organisation."""
    return org, UNNAMED, UNNAMED


def cluster_path(org: str, cluster: str) -> PoolPath:
    """To a cluster."""
    return org, cluster, UNNAMED


def zone_path(zone: str) -> PoolPath:
    """To the machines of a zone."""
    return FLEET, zone, UNNAMED


def machine_path(machine: str) -> PoolPath:
    """To the machine `zone/name`."""
    zone, name = machine.split("/")
    return FLEET, zone, name
