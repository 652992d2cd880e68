"""What people do to NodePools on both sides, and what fails, at random."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.pools.actions import missing_for_pool
from agent.pools.agreement import agreement_of
from agent.pools.objects import LABELS, WantedPool, pool_object
from agent.reading import digest
from nodepool.contract.model import FINALIZER
from nodepool.engine.world import Log, World
from support.agent.agent import Compare, MemoryAgent, Sides
from support.agent.api_server import ApiServer
from support.constants import A100, H100
from support.world_harness import WorldHarness


@dataclass
class Edit:
    """A change that a person has made in the cluster: a field of an object, and its value.

    has_held: whether both sides had it at some moment.
    """

    name: str
    uid: str
    field: str
    value: object
    has_held: bool = False


@dataclass
class Acts:
    """Both sides with agents between them, and what was done to them.

    with_bus: whether people change NodePools on the bus as well, and forget agreements.
    is_restored: whether a backup of either side was restored, so that changes are lost for good.
    """

    seed: int
    steps: int = 60
    agents: int = 2
    with_restores: bool = False
    with_bus: bool = True
    compare: Compare = missing_for_pool
    trace: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        bus = WorldHarness()
        bus.given_data_center(machines=0, quota=50)
        self.sides = Sides(bus, ApiServer())
        self.processes = [MemoryAgent(self.sides, self.compare) for _ in range(self.agents)]
        self.edits: list[Edit] = []
        self.deleted: dict[str, bool] = {}
        """Whether the last that people did to a name's existence was to delete it."""
        self.ever_deleted: set[str] = set()
        self.forgotten: set[str] = set()
        """The uids of the objects of which people have removed the annotations."""
        self.is_restored = False
        self.backups = [(self.sides.api.backup(), self.sides.end)]

    # What people do.

    def _note(self, text: str) -> None:
        self.trace.append(text)

    def _spec(self, kind: str = H100) -> dict[str, Any]:
        spec: dict[str, Any] = {"instanceType": kind, "targetNodes": self.random.randrange(9)}
        if self.random.random() < 0.3:
            spec |= {"autoscaling": True, "minNodes": 0, "maxNodes": 20}
        if self.random.random() < 0.3:
            spec["nodeLabels"] = {self.random.choice("ab"): self.random.choice("xy")}
        return spec

    def cluster_create(self, name: str) -> None:
        """A person creates a NodePool in the cluster."""
        kind = H100 if self.random.random() < 0.9 else A100
        metadata = {"name": name, "labels": {"l": self.random.choice("xy")}}
        item = self.sides.api.create({"metadata": metadata, "spec": self._spec(kind)})
        self._note(f"cluster creates {name}: {item['spec']}")
        self.deleted[name] = False

    def cluster_edit(self, name: str) -> None:
        """A person edits a NodePool in the cluster."""
        roll = self.random.random()
        if roll < 0.6:
            self.edit(name, "targetNodes", self.random.randrange(9))
        elif roll < 0.75:
            self.edit(name, "maxNodes", self.random.randrange(5, 20))
        elif roll < 0.9:
            # Labels that are set back look like those of a backup, for an agent that begins anew.
            values = "xyz" if self.with_bus else (str(len(self.trace)),)
            self.edit(name, LABELS, {"l": self.random.choice(values)})
        else:
            labels = {self.random.choice("abc"): self.random.choice("xyz")}
            self.edit(name, "nodeLabels", labels)

    def edit(self, name: str, where: str, value: object) -> None:
        """A person sets a field of an object to a value."""
        item = self.sides.api.objects.get(name)
        if item is None or "deletionTimestamp" in item["metadata"]:
            return
        if where == LABELS:
            if item["metadata"].get("labels", {}) == value:
                return
            patch: dict[str, object] = {"metadata": {"labels": value}}
        else:
            if item["spec"].get(where) == value:
                return
            old = item["spec"].get(where)
            if isinstance(value, dict) and isinstance(old, dict):
                patch = {"spec": {where: {**dict.fromkeys(old), **value}}}
            else:
                patch = {"spec": {where: value}}
        self.sides.api.patch(name, patch)
        self._note(f"cluster edits {name}: {where}={value}")
        # Where the bus has another value since, what is set back to what both had is no change.
        is_agreed = any(fields.get(where) == digest(value) for fields in self._shared(item))
        self.edits.append(Edit(name, item["metadata"]["uid"], where, value, is_agreed))

    def _shared(self, item: dict[str, Any]) -> Iterator[Mapping[str, str]]:
        """The digests of the fields that both sides had: as agreed, or as sent and accepted."""
        agreement = agreement_of(pool_object(item))
        if agreement is None:
            return
        yield agreement.fields
        for sent in agreement.sent:
            outcome = self.sides.outcome(sent.id)
            if outcome is not None and outcome.outcome == "accepted":
                yield sent.fields

    def cluster_delete(self, name: str) -> None:
        """A person deletes a NodePool in the cluster."""
        item = self.sides.api.objects.get(name)
        self.sides.api.delete(name)
        self._note(f"cluster deletes {name}")
        if item is not None and "deletionTimestamp" in item["metadata"]:
            return  # It was deleted before, and what the bus has made since is another wish.
        pool = self.sides.pools().get(name)
        self.deleted[name] = pool is None or (item is not None and _stands_for(item, pool))
        if item is not None and item["metadata"]["uid"] in self.forgotten:
            self.deleted.pop(name)  # Only an agent that still knows can tell what it stands for.
        self.ever_deleted.add(name)

    def cluster_remove(self, name: str) -> None:
        """A person deletes a NodePool in the cluster, and does not wait for the agent."""
        self.sides.api.patch(name, {"metadata": {"finalizers": None}})
        self._note(f"cluster removes {name}")
        # The agent may be away, and then makes a new object for what the bus has.
        self.deleted.pop(name, None)
        self.ever_deleted.add(name)
        self.sides.api.delete(name)

    def forget_agreement(self, name: str) -> None:
        """A person removes the annotations of the agent."""
        self.sides.api.patch(name, {"metadata": {"annotations": None}})
        self.forgotten.add(self.sides.api.objects[name]["metadata"]["uid"])
        if name not in self.sides.pools():
            self.deleted.pop(name, None)  # Only an agent that still knows can tell.
        self._note(f"cluster forgets {name}")

    def bus_apply(self, name: str) -> None:
        """A person applies a manifest on the bus."""
        metadata = {"labels": {"l": self.random.choice("xy")}}
        spec = self._spec()
        target = spec.pop("targetNodes")
        del spec["instanceType"]
        id = self.sides.bus.apply(name, target, metadata=metadata, **spec)
        result = self.sides.bus.outcomes(id)
        self._note(f"bus applies {name}: {target} {spec} {metadata}: {result}")
        if result[0].startswith("created"):
            self.deleted[name] = False

    def bus_scale(self, name: str) -> None:
        """A person scales a NodePool on the bus."""
        target = self.random.randrange(9)
        id = self.sides.bus.scale(name, target)
        self._note(f"bus scales {name} to {target}: {self.sides.bus.outcomes(id)}")

    def bus_delete(self, name: str) -> None:
        """A person deletes a NodePool on the bus."""
        id = self.sides.bus.delete(name)
        result = self.sides.bus.outcomes(id)
        self._note(f"bus deletes {name}: {result}")
        if result[0].startswith("deleted"):
            item = self.sides.api.objects.get(name)
            # An object that was never shared is another wish, which is not what is deleted here.
            is_shared = item is None or _is_shared(item)
            self.deleted[name] = is_shared
            self.ever_deleted.add(name)

    # What fails.

    def restore_cluster(self) -> None:
        """The cluster is restored from a backup."""
        objects, _ = self.random.choice(self.backups)
        self.sides.api.restore(objects)
        self.is_restored = True
        self._note(f"cluster restored: {sorted(objects)}")
        for process in self.processes:
            process.restart()

    def restore_log(self) -> None:
        """The log is restored from a backup."""
        _, end = self.random.choice(self.backups)
        old = self.sides.bus.world.log
        log = Log(clock=old.clock, id=old.id)
        log.entries = old.entries[:end]
        log.last = {entry.subject: entry.position for entry in log.entries}
        self.backups = [backup for backup in self.backups if backup[1] <= end]
        bus = WorldHarness()
        bus.sent = self.sides.bus.sent
        bus.world = World(bus.services, log=log)
        bus.run_until_idle()
        self.sides.bus = bus
        self.sides.sent.clear()
        self.is_restored = True
        self._note(f"log restored up to {end} of {len(old.entries)}")
        if self.random.random() < 0.5:
            self.bus_apply("three")
        for process in self.processes:
            process.restart()


def _is_shared(item: dict[str, Any]) -> bool:
    agreement = agreement_of(pool_object(item))
    return agreement is not None and agreement.uid != ""


def _stands_for(item: dict[str, Any], pool: WantedPool) -> bool:
    """Whether an object is shared, and not with an earlier NodePool of its name.

    Any other is deleted alone, whatever the bus has under its name.
    """
    agreement = agreement_of(pool_object(item))
    is_shared = FINALIZER in item["metadata"].get("finalizers", ())
    return is_shared and (agreement is None or agreement.uid in ("", pool.uid))
