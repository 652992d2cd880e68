"""What an operator does with capacity, and users with Nodes that they are about to lose."""

from dataclasses import dataclass
from random import Random

from nodepool.contract.model import NodePhase
from support.audit.facts import Facts
from support.constants import A100, H100, WEST, ZONE
from support.paths import pool_path, zone_path
from support.simulation.sender import Sender

OFFERINGS = ((ZONE, H100), (ZONE, H100), (ZONE, A100), (WEST, H100), (WEST, A100))
"""Zones and types of which machines are reclaimed; of the last there are none."""


@dataclass
class Reclaims:
    """Reclaims of machines and their returns, and acknowledged preemptions."""

    random: Random
    facts: Facts
    sender: Sender

    def reclaim(self) -> None:
        """Reclaims some machines, seldom more than there are, or none."""
        self._send("ReclaimCapacity", self.random.choice((1, 1, 1, 2, 3, 50, 0)))

    def give_back(self) -> None:
        """Returns some machines, be they held back or not."""
        self._send("ReturnCapacity", self.random.choice((1, 1, 2, 3, 9, -1)))

    def _send(self, name: str, count: int) -> None:
        zone, instance_type = self.random.choice(OFFERINGS)
        content = {"instanceType": instance_type, "count": count}
        self.sender.send(name, zone_path(zone), content)

    def acknowledge(self) -> None:
        """Acknowledges a preemption, seldom of a Node that is not being preempted."""
        stays = [stay for stay in self.facts.stays.values() if stay.phase != NodePhase.DELETED]
        warned = [stay for stay in stays if stay.warned is not None]
        if self.random.random() < 0.8 and warned:
            stays = warned
        if stays:
            stay = self.random.choice(stays)
            content = {"node": stay.machine.rpartition("/")[2]}
            self.sender.send("AcknowledgePreemption", pool_path(stay.pool.key), content)
