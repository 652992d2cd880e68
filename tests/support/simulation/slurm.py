"""What happens to the Pods of NodePools, and what the prologs and epilogs of Slurm jobs do."""

from dataclasses import dataclass
from random import Random

from nodepool.contract.model import NodePhase
from support.audit.facts import Facts, Stay
from support.paths import pool_path
from support.simulation.sender import Sender

TOLERATION = {"key": "sunk.coreweave.com/lock", "operator": "Exists"}
PODS = 8
"""How many names Pods have."""


@dataclass
class Slurm:
    """Pods that wait for a Node, and jobs that lock Nodes; `facts` is what the log says of both."""

    random: Random
    facts: Facts
    sender: Sender

    def create_pod(self) -> None:
        """Creates a Pod in some NodePool: one of Slurm, or another."""
        pools = list(self.facts.uids)
        if not pools:
            return
        is_slurm = self.random.random() < 0.4
        pod = {
            "name": f"work-{self.random.randrange(PODS)}",
            "interruption": self.random.choice(("blocking", "interruptable", "graceful")),
            "graceS": self.random.choice((0, 30, 300, 3600)),
            "gpus": 0 if is_slurm else self.random.choice((0, 0, 1, 4, 8, 9)),
            "accelerators": self.random.choice((4, 8)) if is_slurm else 0,
            "tolerations": [TOLERATION] if is_slurm else [],
        }
        path = pool_path(self.random.choice(pools))
        self.sender.send("CreatePod", path, {"pod": pod})

    def delete_pod(self) -> None:
        """Deletes a Pod of some NodePool, whether there is one of that name or not."""
        keys = list(self.facts.uids)
        if keys:
            content: dict[str, object] = {"name": f"work-{self.random.randrange(PODS)}"}
            if self.random.random() < 0.3:
                content["graceS"] = self.random.choice((0, 10, 7200))
            self.sender.send("DeletePod", pool_path(self.random.choice(keys)), content)

    def lock(self) -> None:
        """Takes the lock of some Node, in whatever phase that is."""
        self._command("LockNode", list(self._stays()))

    def unlock(self) -> None:
        """Releases a lock, seldom of a Node or for a job that has none."""
        stays = list(self._stays())
        locked = [stay for stay in stays if stay.lock is not None]
        self._command("UnlockNode", locked if locked and self.random.random() < 0.8 else stays)

    def _command(self, name: str, stays: list[Stay]) -> None:
        if not stays:
            return
        stay = self.random.choice(stays)
        job = f"{self.random.randrange(3)}"
        if stay.lock is not None and self.random.random() < 0.7:
            job = stay.lock.job
        content = {"node": stay.machine.rpartition("/")[2], "job": job}
        self.sender.send(name, pool_path(stay.pool.key), content)

    def _stays(self) -> list[Stay]:
        return [s for s in self.facts.stays.values() if s.phase != NodePhase.DELETED]
