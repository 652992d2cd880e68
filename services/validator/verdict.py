"""The verdict of the condition Validated: whether a stored NodePool can be delivered."""

from collections.abc import Iterator
from dataclasses import dataclass

from nodepool.contract import affinity
from nodepool.contract.catalog import (
    INSTANCE_TYPES,
    ZONES,
    Access,
    InstanceType,
    is_offered,
    is_spot_offered,
    type_fault,
)
from nodepool.contract.conditions import HEALTHY, Validated
from nodepool.contract.events import SpecFault
from nodepool.contract.model import ComputeClass, NodePoolSpec
from nodepool.contract.satisfiable import satisfiable


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a spec.

    reason: the reason of the condition Validated.
    message: the message of the condition.
    fault: the kind of fault in the spec; empty if no fault is known.
    """

    reason: Validated
    message: str
    fault: SpecFault = ""


VALID = Verdict(Validated.VALID, HEALTHY[Validated.VALID])


def verdict(spec: NodePoolSpec, zone: str) -> Verdict:
    """Return whether a NodePool with this spec can ever be delivered in the zone of its cluster."""
    instance = INSTANCE_TYPES.get(spec.instance_type)
    if instance is None:
        message = f"instance type {type_fault(spec.instance_type)}"
        return Verdict(Validated.INVALID, message, "InstanceType")
    if spec.region is not None and spec.region != zone:
        message = f"region {spec.region} is not the cluster's zone {zone}"
        return Verdict(Validated.INVALID, message, "Zone")
    if not is_offered(instance.id, zone):
        message = f"instance type {instance.id} is not offered in zone {zone}"
        return Verdict(Validated.INVALID, message, "Zone")
    message = next(_undeliverable(spec, instance, zone), "")
    return Verdict(Validated.INVALID, message, "Settings") if message else VALID


def _spot_zones(instance: InstanceType) -> str:
    """Return where there are spot Nodes of a type, as the end of a sentence."""
    zones = [zone for zone in instance.zones if is_spot_offered(instance.id, zone)]
    return f"{instance.id} is offered as spot in {', '.join(zones) or 'no zone'}"


def _undeliverable(spec: NodePoolSpec, instance: InstanceType, zone: str) -> Iterator[str]:
    if spec.compute_class is ComputeClass.SPOT:
        if instance.superchip:
            yield f"computeClass spot is not offered for the Superchip instance type {instance.id}"
        if ZONES[zone].access is not Access.GENERAL:
            yield (
                f"computeClass spot is not offered in {zone}, which is no General Access zone; "
                f"{_spot_zones(instance)}"
            )
    if instance.rack_size and spec.target % instance.rack_size:
        yield (
            f"targetNodes {spec.target} is not a multiple of {instance.rack_size}, "
            f"the Nodes of one rack of {instance.id}"
        )
    if spec.affinity is None:
        return
    if reason := affinity.fault(spec.affinity):
        yield reason
        return
    labels = affinity.machine_labels(instance, ZONES[zone])
    if reason := satisfiable(spec.affinity, labels, affinity.TOPOLOGY_KEYS):
        yield reason
