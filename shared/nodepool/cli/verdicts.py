"""The warning about a NodePool that is stored but can never be delivered."""

from typing import TYPE_CHECKING

from nodepool.cli.output import print_note

if TYPE_CHECKING:
    from nodepool.contract.events import NodePoolValidated


def warn(stored: "NodePoolValidated") -> None:
    """Print a warning on standard error if the NodePool is not valid."""
    text = warning(stored)
    if text:
        print_note(f"Warning: {text}")


def warning(stored: "NodePoolValidated") -> str:
    """Return why the stored NodePool gets no Nodes, and a remedy; empty if it is valid."""
    from nodepool.contract.conditions import Validated

    if stored.reason is Validated.VALID:
        return ""
    text = f"nodepool/{stored.pool} is stored but {stored.reason}: {stored.message}"
    culprit = _unchangeable(stored)
    if stored.reason is not Validated.INVALID or not culprit:
        return text
    advice = f"delete it with 'nodepool delete nodepool {stored.pool}' and create it anew"
    pause = " " if text.endswith("?") else "; "
    return f"{text}{pause}{culprit} cannot be changed, so {advice}"


def _unchangeable(stored: "NodePoolValidated") -> str:
    """Return the field at fault, if the field can never be changed; otherwise empty."""
    from nodepool.contract.catalog import INSTANCE_TYPES, is_spot_offered

    spec = stored.spec
    is_spot = spec.compute_class == "spot"
    match stored.fault:
        case "InstanceType":
            return "instanceType"
        case "Zone" if spec.region is None or spec.region == stored.zone:
            return "instanceType"
        case "Settings" if is_spot and not is_spot_offered(spec.instance_type, stored.zone):
            is_superchip = INSTANCE_TYPES[spec.instance_type].superchip
            return "instanceType and computeClass" if is_superchip else "computeClass"
    return ""
