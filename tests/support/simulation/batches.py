"""Several commands of one customer in one go, without anything happening in between."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random

from nodepool.contract.model import ComputeClass, NodePhase
from support.audit.facts import Facts, Pool, Stay
from support.constants import RACK
from support.paths import machine_path, org_path, pool_path
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
        """Sends one of the shorter sequences about some NodePool, if there is any."""
        sequences: tuple[Callable[[Pool], None], ...] = (
            self._scale_and_delete,
            self._raise_limit_and_apply,
            self._lower_limit_and_raise,
        )
        self._with_some_pool(self.random.choice(sequences))

    def line_up(self) -> None:
        """Two NodePools wait for a limit, one of them changes, and there is room for either."""
        self._with_some_pool(self._line_up)

    def stay_wrong(self) -> None:
        """A setting becomes wrong, and stays so while something else changes; it may be mended."""
        self._with_some_pool(self._stay_wrong)

    def down_and_up(self) -> None:
        """A NodePool shrinks and grows again."""
        self._with_some_pool(self._down_and_up)

    def shrink_and_preempt(self) -> None:
        """A NodePool shrinks while its Nodes are preempted."""
        self._with_some_pool(self._shrink_and_preempt)

    def delete_in_some_phase(self) -> None:
        """Deletes a NodePool one of whose Nodes is in a phase, drawn among those that there are."""
        phases = {stay.phase: stay for stay in self.facts.stays.values()}
        phases.pop(NodePhase.DELETED, None)
        stays = [phases[phase] for phase in sorted(phases)]
        if stays:
            self._delete(self.random.choice(stays).pool)

    def interfere(self) -> None:
        """Another target, a Pod or a preemption comes up while a Node is on its way out.

        It waits for that, as chance alone seldom hits the moment.
        """
        newest = len(self.sender.log.entries)
        leaving = [
            stay
            for stay in self.facts.stays.values()
            if stay.is_leaving(newest)
            and stay.phase != NodePhase.DELETED
            and stay.pool.deleting_since is None
        ]
        if not leaving:
            return
        stay = self.random.choice(leaving)
        pool = stay.pool
        use, preempt = partial(self._run_pod, stay), partial(self._preempt, stay)
        keep = partial(self._scale, pool, pool.held)
        grow = partial(self._scale, pool, pool.held + 1)
        shrink = partial(self._scale, pool, pool.spec.target - 1)
        orders: tuple[tuple[Order, ...], ...] = (
            (use,),
            (preempt,),
            (use, preempt),
            (preempt, use),
            (preempt, keep),
            (keep,),
            (grow,),
            (shrink,),
        )
        for order in self.random.choice(orders):
            order()

    def _with_some_pool(self, sequence: Callable[[Pool], None]) -> None:
        pools = [pool for pool in self.facts.existing_pools() if pool.deleting_since is None]
        if pools:
            sequence(self.random.choice(pools))

    def _scale(self, pool: Pool, target: int) -> None:
        self.sender.send("ScaleNodePool", pool_path(pool.key), {"targetNodes": max(0, target)})

    def _some_target(self) -> int:
        return self.random.choice(self.profile.targets)

    def _soon(self, order: Order) -> None:
        """Sends a command at once, or some steps later."""
        if self.random.random() < 0.6:
            order()
        else:
            self.sender.delayed.append(order)

    def _delete(self, pool: Pool) -> None:
        self.sender.send("DeleteNodePool", pool_path(pool.key), {})

    def _scale_and_delete(self, pool: Pool) -> None:
        self._scale(pool, self._some_target())
        self._soon(lambda: self._delete(pool))

    def _stay_wrong(self, pool: Pool) -> None:
        wrong = {**spec_of(pool), "affinity": affinity_with("Near")}
        self._apply(pool, wrong)
        for number in range(self.random.choice((1, 2))):
            self._soon(partial(self._apply, pool, wrong, label=str(number)))
        if self.random.random() < 0.6:
            self._soon(lambda: self._apply(pool, spec_of(pool) | {"affinity": None}))
            if self.random.random() < 0.5:
                self._soon(lambda: self._apply(pool, wrong))

    def _apply(self, pool: Pool, spec: Mapping[str, object], label: str = "") -> None:
        path = pool_path(pool.key)
        labels = {"wrong": label} if label else {}
        content = {"metadata": {"name": path[2], "labels": labels}, "spec": spec}
        self.sender.send("ApplyNodePool", path, content)

    def _later(self, order: Order) -> None:
        """Sends a command some steps later, in which Nodes may go."""
        for _ in range(self.random.choice((0, 2, 5, 10))):
            self.sender.delayed.append(lambda: None)
        self.sender.delayed.append(order)

    def _down_and_up(self, pool: Pool) -> None:
        """It wants its Nodes again when some of them are gone, and others still run something."""
        target = max(pool.held, pool.spec.target)
        stays = self._joined(pool)
        if stays and self.random.random() < 0.8:
            self._run_pod(stays[0])
            self._later(lambda: self._scale(pool, target - self.random.choice((1, 3, target))))
        else:
            self._scale(pool, target - self.random.choice((1, 3, target)))
        if self.random.random() < 0.2:
            self._scale(pool, target)
        else:
            self._later(lambda: self._scale(pool, target))

    def _shrink_and_preempt(self, pool: Pool) -> None:
        """The newest Nodes are those that a scale-down takes first, if nothing runs there."""
        stays = self._joined(pool)
        if not stays or pool.spec.compute_class is not ComputeClass.SPOT:
            return
        count = self.random.choice((1, 1, 2))
        orders: list[Order] = [lambda: self._scale(pool, pool.held - count)]
        chosen = stays[-count:] if self.random.random() < 0.7 else [self.random.choice(stays)]
        for stay in chosen:
            orders.append(partial(self._preempt, stay))
            if self.random.random() < 0.5:
                orders.append(partial(self._run_pod, stay))
        self.random.shuffle(orders)
        for order in orders:
            if self.random.random() < 0.4:
                order()
            else:
                self._later(order)

    def _joined(self, pool: Pool) -> list[Stay]:
        """Its Nodes that have joined, the newest last."""
        return [stay for stay in self.facts.stays_in(pool) if stay.phase != NodePhase.BOOTING]

    def _run_pod(self, stay: Stay) -> None:
        pod = {"name": "job-0", "interruption": "blocking"}
        self.sender.send("RunPod", machine_path(stay.machine), {"pod": pod})

    def _preempt(self, stay: Stay) -> None:
        content = {"node": stay.machine.rpartition("/")[2]}
        self.sender.send("PreemptNode", pool_path(stay.pool.key), content)

    def _raise_limit_and_apply(self, pool: Pool) -> None:
        """A limit is raised for one that waits, and a newcomer wants the same."""
        self._set_limit(pool, self.facts.limits.get(pool.ledger, 0) + self.random.choice((1, 2, 5)))
        self._add(pool, self.random.choice((1, 2, 5)))

    def _add(self, pool: Pool, target: int) -> None:
        """Applies a NodePool beside another one, which may be a new one."""
        org, cluster, _ = pool_path(pool.key)
        name = f"new-{self.random.randrange(3)}"
        spec = {"instanceType": pool.spec.instance_type, "targetNodes": target}
        content = {"metadata": {"name": name}, "spec": spec}
        self.sender.send("ApplyNodePool", (org, cluster, name), content)

    def _lower_limit_and_raise(self, pool: Pool) -> None:
        limit = self.facts.limits.get(pool.ledger, 0)
        self._set_limit(pool, max(0, limit - self.random.choice((1, 2, 3))))
        if self.random.random() < 0.3:
            self._set_limit(pool, limit + 1)

    def _line_up(self, pool: Pool) -> None:
        limit, used = self.facts.limits.get(pool.ledger, 0), self.facts.reserved(pool.ledger)
        others = [
            other
            for other in self.facts.existing_pools()
            if other.ledger == pool.ledger and other is not pool and other.deleting_since is None
        ]
        self._scale(pool, limit + 2)
        if others:
            self._scale(self.random.choice(others), limit + 1)
        else:
            self._add(pool, limit + 1)
        change = self.random.randrange(4)
        if change == 0:
            self._apply(pool, {**spec_of(pool), "targetNodes": limit + 2}, label="changed")
        elif change == 1:
            self._scale(pool, limit + 1)
        elif change == 2:
            self._add(pool, limit + 1)
        self._soon(lambda: self._set_limit(pool, limit + 2 + used))

    def _set_limit(self, pool: Pool, limit: int) -> None:
        org, zone, instance_type = pool.ledger
        content = {"zone": zone, "instanceType": instance_type, "limit": limit}
        self.sender.send("SetQuota", org_path(org), content)


def spec_of(pool: Pool) -> dict[str, object]:
    """The spec of a NodePool as a manifest has it."""
    spec: dict[str, object] = pool.spec.model_dump(mode="json", exclude_none=True)
    return spec


def affinity_with(operator: str) -> dict[str, object]:
    """An affinity to machines whose rack label exists; malformed with an unknown operator."""
    affinity: dict[str, dict[str, object]] = {"nodeAffinity": {}}
    expression: dict[str, object] = {"key": RACK, "operator": operator, "values": []}
    affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = {
        "nodeSelectorTerms": [{"matchExpressions": [expression]}]
    }
    return dict(affinity)
