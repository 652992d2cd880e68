"""A seeded storm over both sides of NodePools, with agents between them, and what must hold."""

import json

from agent.pools.objects import LABELS, PoolObject, fields_of, read_spec
from nodepool.contract.model import FINALIZER, NodePoolSpec, spec_document
from support.agent.acts import Acts
from support.agent.agent import MemoryAgent
from support.agent.api_server import ApiError
from support.constants import ZONE
from validator.verdict import verdict

NAMES = ("one", "two")
ROUNDS_MAX = 60
"""After the last change, so many actions must do for each NodePool."""


class Storm(Acts):
    """One run."""

    # The run.

    def _observe(self) -> None:
        pools, objects = self.sides.pools(), self.sides.objects()
        for edit in self.edits:
            if edit.has_held or edit.name not in pools or edit.name not in objects:
                continue
            pool, found = pools[edit.name], objects[edit.name]
            theirs = fields_of(pool.spec, pool.labels).get(edit.field)
            edit.has_held = theirs == edit.value == _value(found, edit.field)

    def run(self) -> None:
        """Everything at random, then the end; raises AssertionError where a rule is broken."""
        for process in self.processes:
            process.restart()
        for _ in range(self.steps):
            self._act()
            self.check_status()
            self._observe()
        self._note("calm")
        self.settle()
        self.check_end()

    def _act(self) -> None:
        choice = self.random.random()
        name = self.random.choice(NAMES)
        process = self.random.choice(self.processes)
        if choice < 0.25:
            self._person(name)
        elif choice < 0.30:
            self._note("agent restarts")
            process.restart()
        elif choice < 0.33:
            process.attempts.clear()
            self._note("replies are lost")
        elif choice < 0.36 and self.with_restores:
            self.random.choice((self.restore_cluster, self.restore_log))()
        elif choice < 0.38:
            self.backups.append((self.sides.api.backup(), self.sides.end))
        elif choice < 0.55:
            process.look_at_bus()
        elif choice < 0.70:
            process.look_at_cluster()
        else:
            self.step(process)

    def _person(self, name: str) -> None:
        acts = [
            (self.cluster_create, 4),
            (self.cluster_edit, 6),
            (self.cluster_delete, 2),
            (self.bus_apply, 4),
            (self.bus_scale, 3),
            (self.bus_delete, 1),
            (self.cluster_remove, 0.3),
            (self.forget_agreement, 0.3),
        ]
        if not self.with_bus:
            acts = [(self.cluster_create, 4), (self.cluster_edit, 6)]
        act = self.random.choices([act for act, _ in acts], [weight for _, weight in acts])[0]
        self.sides.bus.run_until_idle()
        self._observe()
        try:
            act(name)
        except ApiError:
            return

    def step(self, process: MemoryAgent) -> bool:
        """An agent carries out one action; False where it finds nothing missing."""
        moved = process.step(self.random.choice)
        if moved:
            number = self.processes.index(process)
            self._note(f"agent {number}: {process.done}")
        if self.random.random() < 0.8:
            self.sides.bus.run_until_idle()
        return moved

    def settle(self) -> None:
        """Both agents look and act until nothing is missing."""
        for process in self.processes:
            process.restart()
        for _ in range(ROUNDS_MAX * len(NAMES)):
            moved = []
            for process in self.processes:
                self.sides.bus.run_until_idle()
                process.look()
                moved.append(self.step(process))
            if not any(moved):
                return
        raise AssertionError("it never comes to rest")

    # What must hold.

    def check_status(self) -> None:
        """No condition claims to be about a newer spec than it was judged for."""
        for name, found in self.sides.objects().items():
            if found.deleting:
                continue  # Its spec counts no more.
            spec = read_spec(found.spec)
            for condition in self._conditions(found):
                if condition["type"] != "Validated" or not isinstance(spec, NodePoolSpec):
                    continue
                if condition["observedGeneration"] == found.generation:
                    reason = verdict(spec, ZONE).reason
                    assert condition["reason"] == reason, f"{name} claims {condition}"

    @staticmethod
    def _conditions(found: PoolObject) -> list[dict[str, object]]:
        conditions = found.status.get("conditions", [])
        assert isinstance(conditions, list)
        return conditions

    def check_end(self) -> None:
        """Both sides are equal, and nothing was lost without a word."""
        self._observe()
        pools, objects = self.sides.pools(), self.sides.objects()
        assert pools.keys() == objects.keys(), f"bus {sorted(pools)}, cluster {sorted(objects)}"
        for name, found in objects.items():
            spec = read_spec(found.spec)
            assert isinstance(spec, NodePoolSpec), f"{name}: {spec}"
            ours = fields_of(spec_document(spec), found.labels)
            theirs = fields_of(pools[name].spec, pools[name].labels)
            assert ours == theirs, f"{name}: cluster {ours}, bus {theirs}"
            assert FINALIZER in found.finalizers, f"{name} has no finalizer"
            for condition in self._conditions(found):
                at = condition["observedGeneration"], found.generation
                assert at[0] == at[1], f"{name}: {condition} of {at}"
        if not self.is_restored:
            self._check_existence(set(pools))
            self._check_edits()
        if not self.with_bus:
            self._check_nothing_is_undone()

    def _check_existence(self, names: set[str]) -> None:
        for name, is_deleted in self.deleted.items():
            if is_deleted:
                assert name not in names, f"{name} was deleted, and is back"
            elif name not in self.ever_deleted:
                assert name in names, f"nobody has deleted {name}"

    def _check_edits(self) -> None:
        """The last edit of each field of an object has held, or was told as lost."""
        last = {(edit.name, edit.uid, edit.field): edit for edit in self.edits}
        for edit in last.values():
            if edit.name in self.ever_deleted:
                continue
            text = json.dumps(edit.value, sort_keys=True)
            was_told = any(
                message.startswith((f"spec.{edit.field}: {text} ", f"{edit.field}: {text} "))
                for message in self.sides.api.events.values()
            )
            assert edit.has_held or was_told, f"{edit} is lost without a word"

    def _check_nothing_is_undone(self) -> None:
        """Where only people in the cluster change NodePools, each has what they have set last."""
        told = list(self.sides.api.events.values())
        assert told == [], f"a change is undone: {told}"
        found = self.sides.objects()
        for edit in {(edit.name, edit.uid, edit.field): edit for edit in self.edits}.values():
            value = _value(found[edit.name], edit.field)
            assert value == edit.value, f"{edit} is undone: {value}"


def _value(found: PoolObject, where: str) -> object:
    return dict(found.labels) if where == LABELS else found.spec.get(where)
