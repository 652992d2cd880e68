"""Which cluster of Kubernetes an agent connects."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """The cluster that an agent connects.

    org, cluster, zone: its organisation, its name, and the zone that it is in.
    """

    org: str
    cluster: str
    zone: str
