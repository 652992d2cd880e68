"""What the cluster shows: its NodePools, Nodes and Pods, and what a change of them requires."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

from agent.actions import Place, ReportWaiting
from agent.host.declared import NODE_POOLS, NODES, PODS, PoolKind, TolerationPolicy
from agent.host.model import BusModel
from agent.host.work import REPORT_S, WAITING, Key, Work, node_key, pool_key
from agent.nodes.marks import has_startup_taint
from agent.nodes.memory import NodeMemory
from agent.nodes.objects import NodeObject, node_object
from agent.pods.objects import PodObject, pod_object
from agent.pods.waiting import Demand, demand_of
from agent.pools.agreement import AGREED
from agent.pools.objects import PoolObject, pool_object
from agent.pools.openings import missing_reports, opening
from agent.reading import Document, version_number
from nodepool.contract.well_known import MANAGED
from nodepool.host.logs import Logger
from nodepool.kube.api import Api
from nodepool.kube.informer import PAGE, Informer
from nodepool.nats.wire.waiting import until_first

_NOT_ENDED: Final = "status.phase!=Succeeded,status.phase!=Failed"
_UNPLACED: Final = "spec.nodeName=,status.phase=Pending"
"""Selects the Pods that are bound to no Node; the API server filters them."""
_RUNNING: Final = f"spec.nodeName!=,{_NOT_ENDED}"
"""Selects the Pods that are bound to a Node and have not ended; the API server filters them."""

NODES_PER_PAGE: Final = 8
"""How many lists of the Pods of a single Node cost as much as a page of all Pods."""


class ClusterView:
    """The state of one cluster, from four informers.

    kind: how the cluster defines the kind NodePool.
    pools, nodes, pods: the caches of the objects of each kind.
    waiting: the Pods that are on no Node, in a separate cache.
    memory: what is remembered about the Nodes.
    toleration: the policy for new Pods.
    """

    def __init__(
        self,
        api: Api,
        place: Place,
        model: BusModel,
        work: Work,
        resync: Callable[[], None],
        log: Logger,
    ) -> None:
        """Create the view; `resync` asks to compare all keys."""
        self._model, self._work, self._wake = model, work, work.wake
        self.memory = NodeMemory()
        self._pods_of: dict[str, set[str]] = {}
        self._turn, self._all_read_at = asyncio.Lock(), float("-inf")
        self.kind = PoolKind(api)
        self.toleration = TolerationPolicy(api, place, resync, log)
        self._agreed: dict[str, str] = {}
        self._removed: dict[str, PoolObject] = {}
        self.pools: Informer[PoolObject] = Informer(
            api, NODE_POOLS, pool_object, self._pool_changed, log=log, listed=resync
        )
        self.pools.on_deleted = self._pool_deleted
        self.pools.on_lacking = self._pool_lacking
        self.nodes: Informer[NodeObject] = Informer(
            api, NODES, node_object, self._node_changed, log=log, listed=resync
        )
        self.pods: Informer[PodObject] = Informer(
            api, PODS, pod_object, self._pod_changed, log=log, selector=_RUNNING, listed=resync
        )
        self._demands: Counter[Demand] = Counter()
        self.waiting: Informer[Demand] = Informer(
            api,
            PODS,
            demand_of,
            self._demand_changed,
            log=log,
            selector=_UNPLACED,
            listed=lambda: work.wake(WAITING),
        )

    @property
    def informers(self) -> tuple[Informer[PoolObject], Informer[NodeObject], Informer[PodObject]]:
        """The caches of the objects that are compared one by one."""
        return self.pools, self.nodes, self.pods

    def fault(self, kind: str) -> str:
        """Return why objects of a kind cannot be compared now; empty where they can."""
        if kind == "Pod":
            return self.waiting.fault
        if kind == "NodePool":
            return self.pools.fault
        return self.nodes.fault or self.pods.fault

    async def run(self) -> None:
        """Keep all caches and the policy current until the task is cancelled."""
        await until_first(
            *(informer.run() for informer in (*self.informers, self.waiting)), self.toleration.run()
        )

    def faults(self) -> Iterator[str]:
        """Return why some objects are not known as they are now, each as one line."""
        found = (*(informer.fault for informer in self.informers), self.waiting.fault)
        yield from dict.fromkeys(fault for fault in found if fault)

    def wrote(self, kind: str, document: Document) -> None:
        """Store an object as the API server returned it after a write."""
        for informer in self.informers:
            if informer.resource.kind == kind and document.get("kind") in (kind, None):
                informer.wrote(document)

    def remove_object(self, kind: str, key: str, uid: str) -> None:
        """Remove an object that the API server has deleted."""
        for informer in self.informers:
            if informer.resource.kind == kind:
                informer.store.remove(key, uid)

    async def list_pods(self, node: str, since: float) -> None:
        """Read the Pods of a Node as they are after `since`, so that `pods_of` lacks no Pod.

        If many Nodes need a list, one list of all Pods serves all of them.
        """
        pages = len(self.pods.store) // PAGE + 1
        if self.memory.count_asked() <= pages * NODES_PER_PAGE:
            await self.pods.read(f"spec.nodeName={node},{_NOT_ENDED}")
            return
        async with self._turn:
            if self._all_read_at < since:
                now = self._work.clock()
                await self.pods.read(_RUNNING)
                self._all_read_at = now

    def pods_of(self, node: str) -> list[PodObject]:
        """Return the Pods that are bound to a Node, each with the reason of a refused eviction."""
        found = (self.pods.store.get(key) for key in sorted(self._pods_of.get(node, ())))
        refused = self._work.evictions.cause
        return [
            replace(pod, blocked_by=refused(pod.uid)) if refused(pod.uid) else pod
            for pod in found
            if pod is not None
        ]

    def pool(self, name: str) -> PoolObject | None:
        """Return the object of a NodePool, with the last agreement that was seen on it."""
        found = self.pools.store.get(name)
        return found and replace(found, agreed=self._agreed.get(name, ""))

    def removed_pool(self, name: str) -> PoolObject | None:
        """Return the last deleted object of this name; None if there is an object, or never was."""
        return self._removed.get(name)

    def forget_pool(self, name: str) -> None:
        """Forget a NodePool that neither side has any more."""
        self._removed.pop(name, None)

    def pool_uid(self, pool: str) -> str:
        """Return the uid of the object of a NodePool; empty if there is no object."""
        found = self.pools.store.get(pool)
        return "" if found is None else found.uid

    def keys(self) -> Iterator[Key]:
        """Yield every key to compare."""
        yield WAITING
        names: Collection[str] = {
            *self._model.pools,
            *(name for name, _ in self.pools.store.items()),
        }
        yield from (pool_key(name) for name in names)
        yield from (node_key(name) for name in self._model.nodes)
        for name, found in self.nodes.store.items():
            if name not in self._model.nodes and _has_marks(found):
                yield node_key(name)

    def missing_reports(self, place: Place) -> Sequence[ReportWaiting]:
        """Return the missing reports about the Pods that wait for autoscaled NodePools."""
        model = self._model
        self._work.reports.begin(WAITING, self._work.clock() + REPORT_S)
        openings = (
            opening(
                pool,
                self.pool_uid(name),
                (model.nodes[node] for node in model.members(name)),
                place,
            )
            for name, pool in sorted(model.pools.items())
        )
        found = [each for each in openings if each is not None]
        return tuple(missing_reports(self._demands, found, model.waiting, place))

    def _demand_changed(self, _key: str, old: Demand | None, new: Demand | None) -> None:
        self._demands.subtract([old] if old is not None else ())
        self._demands.update([new] if new is not None else ())
        if old is not None and not self._demands[old]:
            del self._demands[old]
        if old != new:
            self._wake(WAITING)

    def _pool_changed(self, key: str, old: PoolObject | None, new: PoolObject | None) -> None:
        self._remember_agreement(key, old, new)
        if new is not None:
            self._removed.pop(key, None)
        self._wake(pool_key(key))
        if (old and old.uid) != (new and new.uid):
            self._wake(WAITING)  # Pods may select Nodes by the label with this uid.
            for name in self._model.members(key):
                self._wake(node_key(name))

    def _remember_agreement(self, key: str, old: PoolObject | None, new: PoolObject | None) -> None:
        """Keep the agreement of an object, unless a backup of the cluster was restored since."""
        is_same = old is not None and new is not None and old.uid == new.uid
        if new is not None and AGREED in new.annotations:
            self._agreed[key] = new.annotations[AGREED]
        elif not is_same or _version(old) >= _version(new):
            self._agreed.pop(key, None)

    def _pool_deleted(self, deleted: PoolObject) -> None:
        name = deleted.name
        if self.pool_uid(name) in ("", deleted.uid):
            self._removed[name] = replace(deleted, agreed=self._agreed.get(name, ""))

    def _pool_lacking(self, seen: PoolObject) -> None:
        """Note the deletion of an object that the watch missed, if the deletion was seen to begin.

        Any other object may be missing because the cluster was restored from a backup.
        """
        if seen.deleting:
            self._pool_deleted(seen)

    def _node_changed(self, key: str, old: NodeObject | None, new: NodeObject | None) -> None:
        self.memory.note_change(key, old, new)
        if not self._is_ours(key, old, new):
            return
        if old is not None and new is not None and _strip_heartbeats(old) == _strip_heartbeats(new):
            return
        self._wake(node_key(key))

    def _is_ours(self, name: str, *objects: NodeObject | None) -> bool:
        """Return whether a Node is one of the bus: any other costs nothing."""
        return name in self._model.nodes or any(
            node is not None and _has_marks(node) for node in objects
        )

    def _pod_changed(self, key: str, old: PodObject | None, new: PodObject | None) -> None:
        for pod in (old, new):
            if pod is not None and pod is not new:
                members = self._pods_of.get(pod.node, set())
                members.discard(key)
                if not members:
                    self._pods_of.pop(pod.node, None)
        if new is not None:
            self._pods_of.setdefault(new.node, set()).add(key)
        if new is None and old is not None:
            self._work.evictions.forget(old.uid)
        if old == new:
            return
        for name in {pod.node for pod in (old, new) if pod is not None}:
            if self._is_ours(name, self.nodes.store.get(name)):
                self._wake(node_key(name))


def _has_marks(node: NodeObject) -> bool:
    """Return whether the control plane has taken a Node, or a kubelet of ours has registered it."""
    return MANAGED in node.annotations or has_startup_taint(node)


def _version(found: PoolObject | None) -> int:
    return 0 if found is None else version_number(found.version)


def _strip_heartbeats(node: NodeObject) -> tuple[object, ...]:
    """Return what counts of a Node, without the fields that its kubelet renews per heartbeat."""
    conditions = tuple(
        tuple(each.get(name) for name in ("type", "status", "reason", "message"))
        for each in node.conditions
    )
    return replace(node, version="", conditions=()), conditions
