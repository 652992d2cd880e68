"""Checks that fail for a while, as those of a service with a bug do."""

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from nodepool.contract.keys import ledger_key, offering_key
from nodepool.contract.messages import OfPool
from nodepool.service import AnyService, Context
from support.audit.facts import Facts
from support.constants import INJECTED

BREAKABLE = ("quota", "capacity", "allocator")
"""The services whose failures show in a condition, and are tried again."""


@dataclass
class Bugs:
    """Which keys each service fails on now; only decisions fail, so a replay is not concerned.

    keys: service and key; the key is that of a NodePool, a limit or an offering.
    """

    random: Random
    keys: set[tuple[str, str]] = field(default_factory=set)

    def in_service(self, service: AnyService) -> AnyService:
        """The service, which fails on the keys that are broken."""
        if service.name not in BREAKABLE:
            return service
        name, reconciler = service.name, service.reconciler
        assert reconciler is not None

        # The states and keys of the services have no type in common.
        def decide(state: Any, message: Any, context: Context) -> Generator[Any, Any, None]:
            # What a service does not know, such as an invalid NodePool, it does not decide on.
            if isinstance(message, OfPool) and message.key in state.pools:
                self._raise(name, message.key)
            return service.decide(state, message, context)

        def reconcile(state: Any, key: Any, context: Context) -> Generator[Any, Any, None]:
            self._raise(name, key)
            yield from reconciler.reconcile(state, key, context)

        return replace(service, decide=decide, reconciler=replace(reconciler, reconcile=reconcile))

    def _raise(self, service: str, key: str) -> None:
        if (service, key) in self.keys:
            raise RuntimeError(INJECTED)

    def change(self, facts: Facts) -> None:
        """Mends what is broken, or breaks one service more for one key."""
        pools = list(facts.existing_pools())
        if not pools or (self.keys and self.random.random() < 0.4):
            self.keys.clear()
            return
        pool, service = self.random.choice(pools), self.random.choice(BREAKABLE)
        org, zone, instance_type = pool.ledger
        ledger, offering = ledger_key(org, zone, instance_type), offering_key(zone, instance_type)
        whole = ledger if service == "quota" else offering
        self.keys.add((service, self.random.choice((pool.key, pool.key, whole))))
