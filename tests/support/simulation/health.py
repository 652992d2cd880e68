"""What is asked for Nodes, and whether NodePools have their unhealthy ones cured."""

from dataclasses import dataclass
from random import Random

from nodepool.contract.model import NodePhase
from support.audit.facts import Facts
from support.paths import machine_path, pool_path
from support.simulation.batches import spec_of
from support.simulation.sender import Sender

NODE_FAULTS = ("xid", "nvlink", "gpu-lost", "disk", "kernel-deadlock", "link-flap", "kubelet")
COMMANDS = ("CordonNode", "UncordonNode", "UncordonNode", "DrainNode", "RebootNode", "ReserveNode")


@dataclass
class Health:
    """Commands about Nodes, problems of Nodes, and the setting that lets them be cured."""

    random: Random
    facts: Facts
    sender: Sender

    def ask(self) -> None:
        """Asks something for some Node, whatever it does."""
        stays = [each for each in self.facts.stays.values() if each.phase != NodePhase.DELETED]
        if not stays:
            return
        stay, name = self.random.choice(stays), self.random.choice(COMMANDS)
        content: dict[str, object] = {"node": stay.machine.rpartition("/")[2]}
        if name in ("DrainNode", "RebootNode"):
            content["force"] = self.random.random() < 0.3
        if name == "ReserveNode":
            org = stay.pool.key.partition("/")[0]
            content["reservedDesired"] = self.random.choice(("control-plane", org))
        self.sender.send(name, pool_path(stay.pool.key), content)

    def reserve(self) -> None:
        """Reserves some Node in production for the control plane, or for its organisation."""
        stays = [each for each in self.facts.stays.values() if each.phase == NodePhase.PRODUCTION]
        if stays:
            stay = self.random.choice(stays)
            org = stay.pool.key.partition("/")[0]
            content = {
                "node": stay.machine.rpartition("/")[2],
                "reservedDesired": org if stay.is_lent else "control-plane",
            }
            self.sender.send("ReserveNode", pool_path(stay.pool.key), content)

    def fail(self) -> None:
        """Gives some Node a problem, or ends one."""
        stays = [each for each in self.facts.stays.values() if each.phase != NodePhase.DELETED]
        if stays:
            fault = self.random.choice(NODE_FAULTS)
            content = {"fault": fault, "times": self.random.choice((0, 1, 1, 1, 2))}
            path = machine_path(self.random.choice(stays).machine)
            self.sender.send("BreakMachine", path, content)

    def allow(self) -> None:
        """Lets the unhealthy Nodes of a NodePool be cured, or not any more."""
        pools = [pool for pool in self.facts.existing_pools() if pool.deleting_since is None]
        if pools:
            pool = self.random.choice(pools)
            path, spec = pool_path(pool.key), spec_of(pool)
            lifecycle = dict(spec.get("lifecycle", {}))  # type: ignore[call-overload]  # A mapping.
            lifecycle["disableUnhealthyNodeEviction"] = self.random.random() < 0.3
            content = {"metadata": {"name": path[2]}, "spec": {**spec, "lifecycle": lifecycle}}
            self.sender.send("ApplyNodePool", path, content)
