"""Checks that fail for a while, as those of a service with a bug do."""

from dataclasses import dataclass, field
from random import Random

from nodepool.contract.keys import ledger_key, offering_key
from nodepool.service import AnyService
from support.audit.facts import Facts
from support.failing import failing_on


@dataclass
class Bugs:
    """Which keys each service fails on now; only decisions fail, so a replay is not concerned.

    breakable: the services that fail.
    keys: service and key; the key is that of a NodePool, a limit or an offering.
    """

    random: Random
    breakable: tuple[str, ...]
    keys: set[tuple[str, str]] = field(default_factory=set)

    def in_service(self, service: AnyService) -> AnyService:
        """The service, which fails on the keys that are broken."""
        return failing_on(self.keys, service) if service.name in self.breakable else service

    def change(self, facts: Facts) -> None:
        """Mends what is broken, or breaks one service more for one key."""
        pools = list(facts.existing_pools())
        if not pools or (self.keys and self.random.random() < 0.4):
            self.keys.clear()
            return
        pool, service = self.random.choice(pools), self.random.choice(self.breakable)
        org, zone, instance_type = pool.ledger
        ledger, offering = ledger_key(org, zone, instance_type), offering_key(zone, instance_type)
        whole = ledger if service == "quota" else offering
        self.keys.add((service, self.random.choice((pool.key, pool.key, whole))))
