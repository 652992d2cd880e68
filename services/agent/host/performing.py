"""Carries out one action: one request to the API server, or one message on the bus."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Final, assert_never

from agent.actions import (
    Action,
    Create,
    Delete,
    Evict,
    ListPods,
    Patch,
    RecordEvent,
    Report,
    ReportWaiting,
    Send,
)
from agent.bus import Document, Reported
from agent.events import event_document
from agent.host.api import MERGE, STRATEGIC, Api, Failure, Resource, Unreachable
from agent.host.commander import Commander
from agent.host.keys import Key
from agent.host.pacing import Pacing
from agent.host.resources import EVENTS, NODE_POOLS, NODES, PODS
from agent.host.session import Bus
from agent.host.telemetry import Telemetry
from agent.host.view import ClusterView
from agent.host.work import Work
from agent.reports import is_minor
from nodepool.contract.agent_metrics import FAILED, REFUSED
from nodepool.contract.events import NodeReported

RESOURCES: Final[Mapping[str, Resource]] = {each.kind: each for each in (NODE_POOLS, NODES, PODS)}
BUDGET: Final = "DisruptionBudget"
"""The cause in a refused eviction that means that a PodDisruptionBudget blocks it."""
TERMINATING: Final = "NamespaceTerminating"
"""The cause in a refusal that means that nothing can be created in a namespace being deleted."""
MANAGER: Final = {"fieldManager": "nodepool-agent"}


class Result(Enum):
    """The result of an action."""

    CHANGED = auto()
    """The known state already includes the effect of the action: the next comparison sees it."""
    SENT = auto()
    """The action is done; its effect becomes visible later, without another action."""
    STALE = auto()
    """The action was based on outdated objects; a watch will show their current state."""


class Performer:
    """Carries out actions, one at a time for each key.

    work: says, right before each action, whether this replica may act.

    Raises Failure, Unreachable, or an error of the bus.
    """

    def __init__(
        self,
        api: Api,
        bus: Bus,
        commander: Commander,
        view: ClusterView,
        pacing: Pacing,
        telemetry: Telemetry,
        work: Work,
    ) -> None:
        self._api, self._bus, self._commander = api, bus, commander
        self._view, self._pacing, self._telemetry = view, pacing, telemetry
        self._woken_at, self._may = work.wake_at, work.may
        self._clock = asyncio.get_running_loop().time

    async def perform(self, key: Key, action: Action) -> Result:
        """Carry out an action for the object of this key."""
        result = FAILED
        try:
            if not self._may():
                raise Unreachable("the Lease is not held any more")
            done = await self._perform(key, action)
            result = done.name.lower()
            return done
        except Failure as failure:
            result = REFUSED if failure.is_lasting else FAILED
            raise
        finally:
            self._telemetry.acted(type(action).__name__, result)

    async def _perform(self, key: Key, action: Action) -> Result:
        match action:
            case Send():
                self._commander.send(key, action)
                return Result.SENT
            case Report():
                return await self._report(key, action)
            case ReportWaiting(event=event):
                await self._bus.publish(event)
                self._bus.model.note_waiting(event)
                return Result.SENT
            case ListPods():
                return await self._list_pods(key, action)
            case Create():
                return await self._create(action)
            case Patch():
                return await self._patch(action)
            case Delete():
                return await self._delete(action)
            case Evict():
                return await self._evict(key, action)
            case RecordEvent():
                await self.record_event(action)
                return Result.SENT
            case never:
                assert_never(never)

    async def _report(self, key: Key, action: Report) -> Result:
        event, model, now = action.event, self._bus.model, self._clock()
        before = model.reported(event.node)
        if isinstance(event, NodeReported):
            if is_minor(event, before) and not self._pacing.may_report(key, now):
                self._woken_at(key, self._pacing.report_at(key))
                return Result.SENT
            self._pacing.reported(key, now)
        await self._bus.publish(event)
        if isinstance(event, NodeReported):
            # In another stay of the machine, no conditions have been reported yet.
            is_other = before.node is not None and before.node.assignment != event.assignment
            model.note_reported(
                event.node,
                replace(Reported() if is_other else before, node=event, drain=action.drain),
            )
        else:
            conditions = {**before.conditions, event.type: event}
            model.note_reported(event.node, replace(before, conditions=conditions))
        return Result.CHANGED

    async def _list_pods(self, key: Key, action: ListPods) -> Result:
        now, memory = self._clock(), self._view.memory
        due = memory.list_at(action.node, action.key, now)
        if now < due:
            self._woken_at(key, due)
            return Result.SENT
        await self._view.list_pods(action.node)
        memory.listed(action.node, action.key)
        return Result.CHANGED

    async def _create(self, action: Create) -> Result:
        resource = RESOURCES[action.kind]
        try:
            document = await self._api.send(
                "create", resource, resource.path(), action.document, params=MANAGER
            )
        except Failure as failure:
            return _stale(failure, "AlreadyExists")
        self._view.wrote(action.kind, document)
        return Result.CHANGED

    async def _patch(self, action: Patch) -> Result:
        resource = RESOURCES[action.kind]
        is_strategic = action.kind == "Node" and action.subresource == "status"
        try:
            document = await self._api.send(
                "patch",
                resource,
                resource.path(action.name, subresource=action.subresource),
                action.patch,
                params=MANAGER,
                content_type=STRATEGIC if is_strategic else MERGE,
            )
        except Failure as failure:
            return _stale(failure, "NotFound", "Conflict")
        self._view.wrote(action.kind, document)
        return Result.CHANGED

    async def _delete(self, action: Delete) -> Result:
        resource = RESOURCES[action.kind]
        preconditions = {"uid": action.uid}
        if action.version:
            preconditions["resourceVersion"] = action.version
        body: dict[str, object] = {"preconditions": preconditions}
        if action.grace_s is not None:
            body["gracePeriodSeconds"] = action.grace_s
        key = f"{action.namespace}/{action.name}" if action.namespace else action.name
        try:
            document = await self._api.send(
                "delete", resource, resource.path(action.name, action.namespace), body
            )
        except Failure as failure:
            if failure.reason != "NotFound":
                return _stale(failure, "Conflict")
            self._view.removed(action.kind, key, action.uid)
            return Result.CHANGED
        metadata = document.get("metadata")
        # The object is gone if the reply is a Status, or an object that waits for nothing.
        if document.get("kind") == action.kind and isinstance(metadata, Mapping):
            waits = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
            if waits:
                self._view.wrote(action.kind, document)
                return Result.CHANGED
        self._view.removed(action.kind, key, action.uid)
        return Result.CHANGED

    async def _evict(self, key: Key, action: Evict) -> Result:
        now = self._clock()
        if not self._pacing.may_evict(action.uid, now):
            self._woken_at(key, self._pacing.evict_at(action.uid))
            return Result.SENT
        try:
            path = PODS.path(action.name, action.namespace, "eviction")
            await self._api.send("create", PODS, path, _eviction(action), params=MANAGER)
        except Failure as failure:
            if TERMINATING in failure.causes:
                return await self._delete(_deletion(action))
            if BUDGET in failure.causes or _has_several_budgets(failure):
                refusal = f"{failure.message} {failure.causes.get(BUDGET, '')}".rstrip()
                self._pacing.evicted(action.uid, now, refusal)
                self._woken_at(key, self._pacing.evict_at(action.uid))
                return Result.CHANGED
            return _stale(failure, "NotFound", "Conflict")
        self._pacing.evicted(action.uid, now)
        self._woken_at(key, self._pacing.evict_at(action.uid))
        return Result.SENT

    async def record_event(self, action: RecordEvent) -> None:
        """Record an Event; an existing Event of the same name stays as it is."""
        document = event_document(action, datetime.now(UTC))
        metadata = document["metadata"]
        assert isinstance(metadata, Mapping), "an Event has metadata"
        name = f"{metadata['namespace']}/{metadata['name']}"
        if self._pacing.is_recorded(name, self._clock()):
            return
        try:
            path = EVENTS.path(namespace=str(metadata["namespace"]))
            await self._api.send("create", EVENTS, path, document, params=MANAGER)
        except Failure as failure:
            is_going = TERMINATING in failure.causes or failure.reason == "NotFound"
            if failure.reason != "AlreadyExists" and not is_going:
                raise
        self._pacing.recorded(name, self._clock())


def _stale(failure: Failure, *expected: str) -> Result:
    """Return STALE if a failure says that the objects have changed; raise any other failure."""
    if failure.reason not in expected:
        raise failure
    return Result.STALE


def _has_several_budgets(failure: Failure) -> bool:
    """Whether an eviction was refused because several budgets protect the Pod.

    See https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/#how-api-initiated-eviction-works.
    """
    return failure.code == 500 and "PodDisruptionBudget" in failure.message


def _deletion(action: Evict) -> Delete:
    """Return the deletion of a Pod that cannot be evicted, with the same grace period."""
    return Delete("Pod", action.name, action.uid, action.namespace, action.grace_s)


def _eviction(action: Evict) -> Document:
    options: dict[str, object] = {"preconditions": {"uid": action.uid}}
    if action.grace_s is not None:
        options["gracePeriodSeconds"] = action.grace_s
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": action.name, "namespace": action.namespace},
        "deleteOptions": options,
    }
