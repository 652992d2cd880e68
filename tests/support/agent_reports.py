"""What the agent of a cluster reports of its Nodes, without a cluster."""

from typing import TYPE_CHECKING, cast

from nodepool.contract.events import NodeReported
from nodepool.contract.pods import Pod
from support.constants import CLUSTER, ORG, ZONE
from support.publishing import publish
from support.world_harness import WorldHarness

if TYPE_CHECKING:
    from collections.abc import Mapping


def report(world: WorldHarness, name: str, /, *pods: Pod, **fields: object) -> None:
    """The agent reports a Node on which the cordon and the lock are in force that the bus names."""
    document = cast("Mapping[str, Mapping[str, object]]", world.node(name))
    shown = document["status"]
    found = {
        "org": ORG,
        "cluster": CLUSTER,
        "pool": "train",
        "node": world.machine_name(name),
        "zone": ZONE,
        "assignment": shown["assignment"],
        "unschedulable": document["spec"].get("unschedulable", False),
        "cordon": shown["cordon"],
        "lock": shown["lock"],
        "pods": pods,
    }
    publish(world.world, NodeReported.model_validate({**found, **fields}))
    world.run_until_idle()
