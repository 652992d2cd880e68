"""The Kubernetes cluster that an agent connects to the bus."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """The cluster that an agent connects to the bus.

    org, cluster, zone: the organisation, the name and the zone of the cluster.
    """

    org: str
    cluster: str
    zone: str
