"""What happens to racks: they are wanted, lose machines, and are repaired."""

from dataclasses import dataclass
from random import Random

from support.audit.facts import TRIAGE, Facts
from support.paths import machine_path, org_path, zone_path
from support.reference.racks import DOMAIN
from support.simulation.profile import Profile
from support.simulation.sender import Sender

RACK_ZONE, RACK_TYPE = "US-EAST-01A", "gb200-4x"
SIZE = 18


@dataclass
class Racks:
    """Racks with an NVLink domain each, and NodePools that want some."""

    random: Random
    facts: Facts
    sender: Sender
    profile: Profile

    def add_first(self) -> None:
        """Adds three racks, and a domain of which a machine is missing."""
        self._add({"count": 3 * SIZE, "inRacks": not self.profile.lacks_domains})
        self._add({"count": SIZE - 1, "labels": {DOMAIN: "short"}})

    def add(self) -> None:
        """Adds a rack, or the machine that one lacks."""
        if self.random.random() < 0.3:
            self._add({"count": 1, "labels": {DOMAIN: "short"}})
        else:
            self._add({"count": SIZE, "inRacks": True})

    def _add(self, content: dict[str, object]) -> None:
        boot_s = self.random.choice(self.profile.boot_s)
        content = {"instanceType": RACK_TYPE, "bootSeconds": boot_s, **content}
        if self.profile.wipe_s:
            content |= {"wipeSeconds": self.profile.wipe_s}
        self.sender.send("AddMachines", zone_path(RACK_ZONE), content)

    def want(self) -> None:
        """Another number of racks for a NodePool, as racks, as Nodes, or scaled to it."""
        name, racks = f"p{self.random.randrange(3)}", self.random.choice((0, 1, 1, 2, 2, 3))
        path = ("acme", "racks", name)
        if self.random.random() < 0.4:
            nodes = racks * SIZE + self.random.choice((0, 0, 0, 5))
            self.sender.send("ScaleNodePool", path, {"targetNodes": nodes})
            return
        in_racks = self.random.random() < 0.6
        target = {"targetRacks": racks} if in_racks else {"targetNodes": racks * SIZE}
        strategy = self.random.choice(("IdleOnly", "PreferIdle"))
        spec = {
            "instanceType": RACK_TYPE,
            **target,
            "lifecycle": {"scaleDownStrategy": strategy},
            "schedulingPriority": {"value": self.random.choice((0, 0, 5))},
        }
        self.sender.send("ApplyNodePool", path, {"metadata": {"name": name}, "spec": spec})

    def change_limit(self) -> None:
        """Raises or lowers the limit of the NodePools that want racks."""
        limit = self.random.choice(self.profile.rack_limits)
        content = {"zone": RACK_ZONE, "instanceType": RACK_TYPE, "limit": limit}
        self.sender.send("SetQuota", org_path("acme"), content)

    def break_some(self) -> None:
        """Makes up to four machines of a domain fail when they boot next."""
        domains = sorted({labels.get(DOMAIN, "") for _, labels, _ in self._machines()})
        if not domains:
            return
        domain = self.random.choice(domains)
        names = [key for key, labels, _ in self._machines() if labels.get(DOMAIN, "") == domain]
        for key in self.random.sample(names, min(len(names), self.random.choice((1, 2, 4)))):
            fault = self.random.choice(self.profile.faults)
            self.sender.send("BreakMachine", machine_path(key), {"fault": fault})

    def repair_some(self) -> None:
        """Repairs some of the machines that are in triage."""
        broken = [key for key, _, holder in self._machines() if holder == TRIAGE]
        for key in broken:
            if self.random.random() < 0.6:
                self.sender.send("RepairMachine", machine_path(key), {})

    def _machines(self) -> list[tuple[str, dict[str, str], str]]:
        """The machines of the type: the key, the labels and the holder of each."""
        return [
            (key, machine.labels, machine.holder)
            for key, machine in self.facts.machines.items()
            if machine.instance_type == RACK_TYPE
        ]
