"""Commands that create a NodePool from flags, or from a result of Capacity Finder."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from nodepool.cli.errors import CliError

if TYPE_CHECKING:
    from nodepool.contract.availability import ZoneAvailability
    from nodepool.contract.commands import ApplyNodePool
    from nodepool.contract.events import CapacityFound

Place = tuple["ZoneAvailability", str]
"""A zone as Capacity Finder ranks it, and a cluster of the organisation in this zone."""


def new_pool(name: str, spec: Mapping[str, object]) -> "ApplyNodePool":
    """Return the command that creates a NodePool; raise `ManifestError` for an invalid field."""
    from nodepool.client.manifests import parse_manifest
    from nodepool.contract.model import API_VERSION, KIND

    body = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name},
        "spec": spec,
    }
    return only_new(parse_manifest(body, f'nodepool "{name}"'))


def only_new(command: "ApplyNodePool") -> "ApplyNodePool":
    """Return the command that is refused if the NodePool already exists."""
    return command.model_copy(update={"create_only": True})


def best_place(
    found: "CapacityFound",
    zone_of_cluster: Mapping[str, str],
    preferred: str,
    registering: Callable[[str], str],
) -> Place:
    """Return the best zone that may have the Nodes and has a cluster, and this cluster.

    zone_of_cluster: the zone of each cluster of the organisation.
    preferred: the cluster to take where the zone has several clusters.
    registering: returns how the user gets a cluster in a zone.

    Raise `CliError` where no zone may have the Nodes, where none of these zones has a cluster, and
    where the preferred cluster is not among several clusters of the zone.
    """
    likely = _likely(found)
    if not likely:
        raise CliError(
            f"no zone has {_format_selections(found)} now; ask again later, or for fewer Nodes"
        )
    for zone in likely:
        clusters = sorted(name for name, its in zone_of_cluster.items() if its == zone.zone)
        if clusters:
            return zone, _cluster(zone.zone, clusters, preferred)
    raise CliError(
        f"{found.org} has no cluster in a zone that may have {_format_selections(found)}; "
        f"{registering(likely[0].zone)}"
    )


def _likely(found: "CapacityFound") -> "Sequence[ZoneAvailability]":
    """Return the zones that may have the Nodes, the best first."""
    from nodepool.contract.availability import Availability

    return [zone for zone in found.zones if zone.availability.rank <= Availability.LIMITED.rank]


def _cluster(zone: str, clusters: Sequence[str], preferred: str) -> str:
    if len(clusters) == 1:
        return clusters[0]
    if preferred in clusters:
        return preferred
    shown = ", ".join(clusters[:5]) + (", ..." if len(clusters) > 5 else "")
    raise CliError(f"{zone} has several clusters; choose one with --cluster: {shown}")


def _format_selections(found: "CapacityFound") -> str:
    return " and ".join(f"{each.count} x {each.instance_type}" for each in found.selections)
