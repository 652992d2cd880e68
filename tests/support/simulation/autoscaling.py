"""What makes NodePools grow and shrink by themselves: Pods that wait and end, and their bounds."""

from dataclasses import dataclass
from random import Random

from support.audit.facts import Facts, Pool
from support.constants import H100
from support.paths import pool_path
from support.simulation.batches import spec_of
from support.simulation.sender import Sender

NAMES = tuple(f"worker-{number}" for number in range(6))
"""The names of Pods, so few that they are used again."""


@dataclass
class Autoscaling:
    """Pods of NodePools, and whether these are autoscaled."""

    random: Random
    facts: Facts
    sender: Sender

    def autoscale(self) -> None:
        """Has the target of a NodePool follow its Pods within some bounds, or does so no more."""
        pool = self._some_pool()
        if pool is None:
            return
        path, spec = pool_path(pool.key), spec_of(pool)
        least = self.random.choice((0, 0, 1, 2))
        most = least + self.random.choice((0, 1, 3, 5))
        spec |= {
            "autoscaling": self.random.random() < 0.9,
            "minNodes": least,
            "maxNodes": most,
            "targetNodes": min(max(pool.spec.target, least), most),
        }
        if self.random.random() < 0.1:
            spec["targetNodes"] = most + self.random.choice((0, 1))
        content = {"metadata": {"name": path[2]}, "spec": spec}
        self.sender.send("ApplyNodePool", path, content)

    def request_pod(self) -> None:
        """Creates a Pod that waits for a Node, or for ever."""
        pool = self._some_pool()
        if pool is None:
            return
        pod = {
            "name": self.random.choice(NAMES),
            "gpus": self.random.choice((0, 1, 4, 5, 8, 8, 9)),
            "interruption": self.random.choice(("blocking", "interruptable", "graceful")),
            "graceS": self.random.choice((0, 30, 300)),
        }
        self.sender.send("CreatePod", pool_path(pool.key), {"pod": pod})

    def withdraw_pod(self) -> None:
        """Deletes a Pod, if it is there."""
        pool = self._some_pool()
        if pool is not None:
            content = {"name": self.random.choice(NAMES), "graceS": self.random.choice((0, 30))}
            self.sender.send("DeletePod", pool_path(pool.key), content)

    def _some_pool(self) -> Pool | None:
        """A NodePool with Nodes of the common type, often an autoscaled one."""
        pools = [
            pool
            for pool in self.facts.existing_pools()
            if pool.deleting_since is None and pool.spec.instance_type == H100
        ]
        autoscaled = [pool for pool in pools if pool.spec.autoscaling]
        if autoscaled and self.random.random() < 0.8:
            pools = autoscaled[:2]
        return self.random.choice(pools) if pools else None
