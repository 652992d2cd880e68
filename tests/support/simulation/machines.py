"""What happens to machines: they are added, break and are repaired, and Pods run on them."""

from dataclasses import dataclass
from random import Random

from nodepool.contract.keys import PoolPath
from nodepool.contract.model import ComputeClass, NodePhase
from support.audit.facts import Facts, Stay
from support.constants import A100, H100, RACK, WEST, ZONE
from support.paths import machine_path, zone_path
from support.simulation.profile import Profile
from support.simulation.racks import RACK_TYPE, RACK_ZONE, Racks
from support.simulation.sender import Sender

FIRST_MACHINES = ((ZONE, A100, 3), (WEST, H100, 3))
"""Zone, type and number of the machines that are there at first, beside the common ones."""


@dataclass
class Machines:
    """Machines of a few offerings; `facts` is what is known of them from the log."""

    random: Random
    facts: Facts
    sender: Sender
    profile: Profile

    def __post_init__(self) -> None:
        self.racks = Racks(self.random, self.facts, self.sender, self.profile)

    def add_first(self) -> None:
        """Adds the machines that are there from the beginning."""
        for zone, instance_type, count in FIRST_MACHINES:
            self._add(zone, instance_type, count)
        at_once = self.profile.outputs_max - 2  # Each is an output, beside the outcome.
        for first in range(0, self.profile.machines, at_once):
            self._add(ZONE, H100, min(at_once, self.profile.machines - first))
        if self.profile.domains:
            self.racks.add_first()
        elif self.profile.racks:
            self._add(RACK_ZONE, RACK_TYPE, self.random.choice((20, 30)))

    def add(self) -> None:
        """Adds one or two machines."""
        if self.profile.racks and not self.profile.domains and self.random.random() < 0.5:
            self._add(RACK_ZONE, RACK_TYPE, self.random.choice((1, 7, 18)))
            return
        zone, instance_type = self.random.choice(((ZONE, H100), (ZONE, A100), (WEST, H100)))
        self._add(zone, instance_type, self.random.choice((1, 2)))

    def _add(self, zone: str, instance_type: str, count: int) -> None:
        has_rack = self.random.random() < 0.5
        content: dict[str, object] = {
            "instanceType": instance_type,
            "count": count,
            "labels": {RACK: self.random.choice(("r1", "r2"))} if has_rack else {},
            "bootSeconds": self.random.choice(self.profile.boot_s),
        }
        if self.profile.verify_s:
            content |= {"verifySeconds": self.profile.verify_s, "repairSeconds": 3_600}
        if self.profile.wipe_s:
            content |= {"wipeSeconds": self.profile.wipe_s}
        self.sender.send("AddMachines", zone_path(zone), content)

    def break_one(self) -> None:
        """Makes a machine fail when it boots next."""
        path = self._some_path()
        if path is not None:
            fault = self.random.choice(self.profile.faults)
            content = {"fault": fault, "times": self.random.choice((1, 1, 2))}
            self.sender.send("BreakMachine", path, content)

    def fall_silent(self) -> None:
        """Makes some or all Nodes of a zone hang at about the same time."""
        stays = self._joined()
        if stays:
            zone = self.random.choice(stays).machine.partition("/")[0]
            share = self.random.choice((0.3, 0.6, 0.8, 1.0))
            self._break(stays, zone, share, times=1)

    def answer_again(self) -> None:
        """Lets some or all machines of a zone answer again."""
        stays = self._joined()
        if stays:
            zone = self.random.choice(stays).machine.partition("/")[0]
            self._break(stays, zone, self.random.choice((0.3, 0.7, 1.0, 1.0)), times=0)

    def _break(self, stays: list[Stay], zone: str, share: float, times: int) -> None:
        for stay in stays:
            if stay.machine.startswith(f"{zone}/") and self.random.random() < share:
                content = {"fault": "hang", "times": times}
                self.sender.send("BreakMachine", machine_path(stay.machine), content)

    def _joined(self) -> list[Stay]:
        outside = (NodePhase.BOOTING, NodePhase.DELETED)
        return [stay for stay in self.facts.stays.values() if stay.phase not in outside]

    def repair_one(self) -> None:
        """Repairs a machine, broken or not."""
        path = self._some_path()
        if path is not None:
            self.sender.send("RepairMachine", path, {})

    def run_pod(self) -> None:
        """Starts a Pod on some Node."""
        stay = self.some_node()
        if stay is not None:
            self.run_pod_on(stay)

    def run_pod_on(self, stay: Stay) -> None:
        """Starts a Pod on this Node."""
        pod = {
            "name": f"job-{self.random.randrange(2)}",
            "interruption": self.random.choice(("blocking", "interruptable", "graceful")),
            "graceS": self.random.choice((0, 30, 300, 3600)),
            "daemonSet": self.random.random() < 0.1,
        }
        self.sender.send("RunPod", machine_path(stay.machine), {"pod": pod})

    def stop_pod(self) -> None:
        """Ends a Pod on some Node that runs one."""
        working = [stay for stay in self.facts.stays.values() if stay.working]
        if working:
            self.stop_pod_on(self.random.choice(working))

    def stop_pod_on(self, stay: Stay) -> None:
        """Ends a Pod on this Node."""
        content = {"name": f"job-{self.random.randrange(2)}"}
        self.sender.send("StopPod", machine_path(stay.machine), content)

    def some_node(self, *, is_spot: bool = False, is_booting: bool = False) -> Stay | None:
        """A Node in production, or one that boots; None where there is none."""
        phase = NodePhase.BOOTING if is_booting else NodePhase.PRODUCTION
        stays = [
            stay
            for stay in self.facts.stays.values()
            if stay.phase == phase
            and (not is_spot or stay.pool.spec.compute_class is ComputeClass.SPOT)
        ]
        return self.random.choice(stays) if stays else None

    def _some_path(self) -> PoolPath | None:
        keys = list(self.facts.machines)
        return machine_path(self.random.choice(keys)) if keys else None
