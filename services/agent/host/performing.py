"""Carries out one action: one request to the API server, or one message on the bus."""

from collections.abc import Mapping
from dataclasses import replace
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
from agent.host.declared import NODE_POOLS, NODES, PODS
from agent.host.session import Bus
from agent.host.telemetry import Telemetry
from agent.host.view import ClusterView
from agent.host.work import REPORT_S, Key, Work
from agent.nodes.objects import NOTHING_REPORTED
from agent.nodes.reports import is_minor
from agent.pools.status import is_progress
from agent.reading import Document
from nodepool.contract.agent_metrics import FAILED, REFUSED
from nodepool.contract.events import NodeReported
from nodepool.contract.model import API_VERSION
from nodepool.kube.api import MERGE, STRATEGIC, Api, Resource
from nodepool.kube.events import Event, Recorder, Regarding
from nodepool.kube.failures import TERMINATING, ApiFailure, ApiUnreachable, part

RESOURCES: Final[Mapping[str, Resource]] = {each.kind: each for each in (NODE_POOLS, NODES, PODS)}
VERSIONS: Final = {"NodePool": API_VERSION, "Node": "v1", "Pod": "v1"}
BUDGET: Final = "DisruptionBudget"
"""The cause in a refused eviction that means that a PodDisruptionBudget blocks it."""
STATUS_S: Final = 1.0
"""The pause between two patches of the status of a NodePool that show only progress."""
REFUSED_S: Final = 5.0
"""The pause before retrying the eviction of a Pod that a PodDisruptionBudget protects."""
TAKEN_S: Final = 30.0
"""The pause before evicting a Pod again after its eviction was accepted."""


class Result(Enum):
    """The result of an action."""

    CHANGED = auto()
    """The known state already includes the effect of the action: the next comparison sees it."""
    SENT = auto()
    """The action is done; its effect becomes visible later, without another action."""
    STALE = auto()
    """The action was based on outdated objects; a watch will show their current state."""


def kubernetes_event(action: RecordEvent) -> Event:
    """Return the Event that an action records."""
    version = VERSIONS[action.kind]
    regarding = Regarding(version, action.kind, action.name, action.uid, action.namespace)
    fields = action.severity, action.reason, action.message, action.key, action.component
    return Event(regarding, *fields, action.count)


class Performer:
    """Carries out actions, one at a time for each key.

    work: says, right before each action, whether this replica may act.

    Raises ApiFailure, ApiUnreachable, or an error of the bus.
    """

    def __init__(
        self,
        api: Api,
        bus: Bus,
        view: ClusterView,
        telemetry: Telemetry,
        work: Work,
    ) -> None:
        self._api, self._bus = api, bus
        self._view, self._telemetry, self._work = view, telemetry, work
        self._recorder = Recorder(api)

    async def perform(self, key: Key, action: Action) -> Result:
        """Carry out an action for the object of this key."""
        result = FAILED
        try:
            if not self._work.may():
                raise ApiUnreachable("the Lease is not held any more")
            done = await self._perform(key, action)
            result = done.name.lower()
            return done
        except ApiFailure as failure:
            result = REFUSED if failure.is_lasting else FAILED
            raise
        finally:
            self._telemetry.count_action(type(action).__name__, result)

    async def _perform(self, key: Key, action: Action) -> Result:
        match action:
            case Send():
                self._bus.commander.send(key, action)
                return Result.SENT
            case Report():
                return await self._report(key, action)
            case ReportWaiting(event=event):
                await self._bus.publish(event)
                self._bus.model.waiting[event.pool] = event
                return Result.SENT
            case ListPods():
                return await self._list_pods(key, action)
            case Patch(kind="NodePool", subresource="status"):
                return await self._show_status(key, action)
            case Create() | Patch():
                return await self._write(action)
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
        event, model, now = action.event, self._bus.model, self._work.clock()
        before = model.reported.get(event.node, NOTHING_REPORTED)
        reports = self._work.reports
        if isinstance(event, NodeReported):
            if is_minor(event, before) and not reports.is_over(key, now):
                self._work.wake_at(key, reports.ends_at(key))
                return Result.SENT
            reports.begin(key, now + REPORT_S)
        await self._bus.publish(event)
        if isinstance(event, NodeReported):
            # In another stay of the machine, no conditions have been reported yet.
            is_other = before.node is not None and before.node.assignment != event.assignment
            after = replace(
                NOTHING_REPORTED if is_other else before, node=event, drain=action.drain
            )
        else:
            after = replace(before, conditions={**before.conditions, event.type: event})
        model.reported[event.node] = after
        return Result.CHANGED

    async def _show_status(self, key: Key, action: Patch) -> Result:
        """Show a verdict at once, and progress at most every `STATUS_S` seconds."""
        found, pauses, now = self._view.pool(key.name), self._work.reports, self._work.clock()
        patch = part(action.patch, "status")
        if found is not None and is_progress(patch, found.status) and not pauses.is_over(key, now):
            self._work.wake_at(key, pauses.ends_at(key))
            return Result.SENT
        pauses.begin(key, now + STATUS_S)
        return await self._write(action)

    async def _list_pods(self, key: Key, action: ListPods) -> Result:
        now, memory = self._work.clock(), self._view.memory
        due = memory.list_at(action.node, action.key, now)
        if now < due:
            self._work.wake_at(key, due)
            return Result.SENT
        await self._view.list_pods(action.node, due)
        memory.note_list(action.node, action.key)
        return Result.CHANGED

    async def _write(self, action: Create | Patch) -> Result:
        resource = RESOURCES[action.kind]
        try:
            if isinstance(action, Create):
                document = await self._api.create(resource, action.document)
            else:
                is_strategic = action.kind == "Node" and action.subresource == "status"
                document = await self._api.patch(
                    resource,
                    action.name,
                    action.patch,
                    subresource=action.subresource,
                    content_type=STRATEGIC if is_strategic else MERGE,
                )
        except ApiFailure as failure:
            is_new = isinstance(action, Create)
            return _stale(failure, *(("AlreadyExists",) if is_new else ("NotFound", "Conflict")))
        self._view.wrote(action.kind, document)
        return Result.CHANGED

    async def _delete(self, action: Delete) -> Result:
        preconditions = {"uid": action.uid}
        if action.version:
            preconditions["resourceVersion"] = action.version
        options: dict[str, object] = {"preconditions": preconditions}
        if action.grace_s is not None:
            options["gracePeriodSeconds"] = action.grace_s
        try:
            document = await self._api.delete(
                RESOURCES[action.kind], action.name, action.namespace, options
            )
        except ApiFailure as failure:
            if failure.reason != "NotFound":
                return _stale(failure, "Conflict")
            document = {}
        # The object is gone if the reply is a Status, or an object that waits for nothing.
        metadata = part(document, "metadata") if document.get("kind") == action.kind else {}
        if metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds"):
            self._view.wrote(action.kind, document)
            return Result.CHANGED
        key = f"{action.namespace}/{action.name}" if action.namespace else action.name
        self._view.remove_object(action.kind, key, action.uid)
        return Result.CHANGED

    async def _evict(self, key: Key, action: Evict) -> Result:
        now, evictions = self._work.clock(), self._work.evictions
        if not evictions.is_over(action.uid, now):
            self._work.wake_at(key, evictions.ends_at(action.uid))
            return Result.SENT
        until, refusal, result = now + TAKEN_S, "", Result.SENT
        try:
            name, namespace = action.name, action.namespace
            await self._api.create(
                PODS, _eviction(action), name=name, namespace=namespace, subresource="eviction"
            )
        except ApiFailure as failure:
            if TERMINATING in failure.causes:
                # The Pod cannot be evicted; its deletion has the same grace period.
                return await self._delete(Delete("Pod", name, action.uid, namespace))
            if BUDGET not in failure.causes and not _has_several_budgets(failure):
                return _stale(failure, "NotFound", "Conflict")
            refusal = f"{failure.message} {failure.causes.get(BUDGET, '')}".rstrip()
            until, result = now + REFUSED_S, Result.CHANGED
        evictions.begin(action.uid, until, refusal)
        self._work.wake_at(key, until)
        return result

    async def record_event(self, action: RecordEvent) -> None:
        """Record an Event; an existing Event of the same name stays as it is."""
        await self._recorder.record(kubernetes_event(action), action.time, action.last)


def _stale(failure: ApiFailure, *expected: str) -> Result:
    """Return STALE if a failure says that the objects have changed; raise any other failure."""
    if failure.reason not in expected:
        raise failure
    return Result.STALE


def _has_several_budgets(failure: ApiFailure) -> bool:
    """Return whether an eviction was refused because several budgets protect the Pod.

    See https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/#how-api-initiated-eviction-works.
    """
    return failure.code == 500 and "PodDisruptionBudget" in failure.message


def _eviction(action: Evict) -> Document:
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": action.name, "namespace": action.namespace},
        "deleteOptions": {"preconditions": {"uid": action.uid}},
    }
