"""Checks that a NodePool at rest is at its target, or that its conditions give the right reason."""

from nodepool.contract.model import NodePhase, ScaleDownStrategy
from support.audit.assignment import fits
from support.audit.facts import Facts, Pool, Violation
from support.documents import NodePool

STAYING = (NodePhase.BOOTING, NodePhase.PRODUCTION)
"""The phases of a Node that is not being removed."""


class PoolChecks:
    """The facts about one NodePool, beside the NodePool in the read model.

    conditions: the reason of each condition, by type.
    """

    def __init__(self, facts: Facts, pool: Pool, node_pool: NodePool) -> None:
        self.facts = facts
        self.pool = pool
        self.target = pool.spec.target_nodes
        conditions = node_pool["status"]["conditions"]
        self.conditions = {each["type"]: each["reason"] for each in conditions}

    def check(self) -> None:
        """Raises `Violation` for the first check that fails."""
        if self.pool.deleting_since is not None:
            raise self._violation("it is not deleted yet")
        if self.conditions["Validated"] == "Invalid":
            return
        self._check_quota()
        self._check_capacity()
        self._check_grants()
        self._check_scale_down()
        self._check_target()

    def _violation(self, text: str) -> Violation:
        pool = self.pool
        return Violation(
            f"{pool.key}: {text}; it wants {self.target}, holds {pool.held}, "
            f"and its conditions are {self.conditions}"
        )

    def _check_quota(self) -> None:
        is_under = self.conditions["Quota"] == "Under"
        reason = self.pool.grants.last.reason
        if (reason == "Under") is not is_under:
            raise self._violation(f"its last grant is {reason}")
        others = self.facts.reserved(self.pool.ledger) - self.pool.reserved
        limit = self.facts.limits.get(self.pool.ledger, -1)
        if (others + self.target <= limit) is not is_under:
            raise self._violation(f"other NodePools reserve {others} of {limit}")

    def _check_capacity(self) -> None:
        # A NodePool over its quota gets no Node, whatever it was granted before.
        is_under = self.conditions["Quota"] == "Under"
        is_short = is_under and self.pool.held < self.pool.grants.last.granted
        if is_short is (self.conditions["Capacity"] == "Sufficient"):
            raise self._violation("its condition Capacity is wrong")
        free = self._free_machines()
        if is_short and free:
            raise self._violation(f"it waits while {free} are free")

    def _check_grants(self) -> None:
        """Only the last grant may still be used: each smaller one was acknowledged."""
        needed = max(self.pool.held, self.pool.grants.last.granted)
        if self.pool.reserved > needed:
            raise self._violation(f"it reserves {self.pool.reserved} Nodes and needs {needed}")

    def _free_machines(self) -> list[str]:
        """The free machines that it could have."""
        return [
            key
            for key, machine in self.facts.machines.items()
            if not machine.holder
            and machine.offering == self.pool.offering
            and fits(self.pool.spec, machine)
        ]

    def _check_scale_down(self) -> None:
        staying = [stay for stay in self.facts.stays_in(self.pool) if stay.phase in STAYING]
        idle = [stay for stay in staying if not stay.working]
        strategy = self.pool.spec.lifecycle.scale_down_strategy
        may_shrink = bool(idle) or strategy is ScaleDownStrategy.PREFER_IDLE
        if len(staying) > self.target and may_shrink:
            raise self._violation(f"it keeps {len(staying)} Nodes, of which {len(idle)} are idle")

    def _check_target(self) -> None:
        stays = self.facts.stays_in(self.pool)
        current = sum(stay.phase != NodePhase.BOOTING for stay in stays)
        reasons = ("TargetMet", "OverTarget", "UnderTarget")
        expected = reasons[(current > self.target) - (current < self.target)]
        if self.conditions["AtTarget"] != expected:
            raise self._violation(f"its condition AtTarget is wrong, as it has {current} Nodes")
