"""Several commands of one customer in one go, without anything happening in between."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from nodepool.contract.model import ComputeClass
from support.audit.facts import Facts, Pool, Stay
from support.paths import org_path, pool_path
from support.simulation.profile import Profile
from support.simulation.sender import Sender

Order = Callable[[], None]
"""Sends a command."""


@dataclass
class Batches:
    """Sequences of commands that once were handled wrongly, or might be."""

    random: Random
    facts: Facts
    sender: Sender
    profile: Profile

    def send(self) -> None:
        """Sends one of the sequences about some NodePool, if there is any."""
        pools = [pool for pool in self.facts.existing_pools() if pool.deleting_since is None]
        if not pools:
            return
        sequences: tuple[Callable[[Pool], None], ...] = (
            self._scale_and_delete,
            self._down_and_up,
            self._shrink_and_preempt,
            self._raise_limit_and_apply,
            self._lower_limit_and_raise,
        )
        self.random.choice(sequences)(self.random.choice(pools))

    def _scale(self, pool: Pool, target: int) -> None:
        self.sender.send("ScaleNodePool", pool_path(pool.key), {"targetNodes": max(0, target)})

    def _some_target(self) -> int:
        return self.random.choice(self.profile.targets)

    def _scale_and_delete(self, pool: Pool) -> None:
        self._scale(pool, self._some_target())
        self.sender.send("DeleteNodePool", pool_path(pool.key), {})

    def _down_and_up(self, pool: Pool) -> None:
        target = max(pool.held, pool.spec.target_nodes)
        self._scale(pool, target - self.random.choice((1, 3, target)))
        if self.random.random() < 0.5:
            self._scale(pool, target)
        else:
            self.sender.delayed.append(lambda: self._scale(pool, target))

    def _shrink_and_preempt(self, pool: Pool) -> None:
        stays = self.facts.stays_in(pool)
        if not stays or pool.spec.compute_class is not ComputeClass.SPOT:
            return
        count = self.random.choice((1, 1, 2))
        orders: list[Order] = [
            lambda: self._scale(pool, pool.held - count),
            *(
                lambda stay=stay: self._preempt(stay)
                for stay in self.random.sample(stays, min(len(stays), count))
            ),
        ]
        self.random.shuffle(orders)
        for order in orders:
            if self.random.random() < 0.6:
                order()
            else:
                self.sender.delayed.append(order)

    def _preempt(self, stay: Stay) -> None:
        content = {"node": stay.machine.rpartition("/")[2]}
        self.sender.send("PreemptNode", pool_path(stay.pool.key), content)

    def _raise_limit_and_apply(self, pool: Pool) -> None:
        """A limit is raised for one that waits, and a newcomer wants the same."""
        self._set_limit(pool, self.facts.limits.get(pool.ledger, 0) + self.random.choice((1, 2, 5)))
        org, cluster, _ = pool_path(pool.key)
        name = f"new-{self.random.randrange(3)}"
        spec = {
            "instanceType": pool.spec.instance_type,
            "targetNodes": self.random.choice((1, 2, 5)),
        }
        self.sender.send(
            "ApplyNodePool", (org, cluster, name), {"metadata": {"name": name}, "spec": spec}
        )

    def _lower_limit_and_raise(self, pool: Pool) -> None:
        limit = self.facts.limits.get(pool.ledger, 0)
        self._set_limit(pool, max(0, limit - self.random.choice((1, 2, 3))))
        if self.random.random() < 0.3:
            self._set_limit(pool, limit + 1)

    def _set_limit(self, pool: Pool, limit: int) -> None:
        org, zone, instance_type = pool.ledger
        content = {"zone": zone, "instanceType": instance_type, "limit": limit}
        self.sender.send("SetQuota", org_path(org), content)
