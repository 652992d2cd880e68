"""Compares one NodePool or Node, and carries out the missing actions."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from agent.actions import (
    Action,
    Attempt,
    ListPods,
    Place,
    RecordEvent,
    ends_pod,
    is_deletion,
)
from agent.host.declared import KindChange
from agent.host.performing import Performer, Result
from agent.host.refusals import Refusals
from agent.host.session import Bus
from agent.host.telemetry import Telemetry
from agent.host.view import ClusterView
from agent.host.work import WAITING, Key, Work
from agent.nodes.missing import ABANDONED_S, NodeView, missing_for_node
from agent.nodes.objects import NOTHING_REPORTED, NodeObject
from agent.nodes.set_backs import set_back_fields
from agent.pools.actions import missing_for_pool
from agent.pools.agreement import agreement_of, is_unresolved
from agent.pools.objects import Log, PoolObject
from agent.pools.sides import NOT_DELETED, Facts, Origin
from nodepool.client.mirror import FAULTS
from nodepool.kube.failures import ApiFailure, ApiUnreachable
from nodepool.nats.wire.errors import InDoubt

ROUNDS_MAX: Final = 10
"""The most comparisons in a row that find something missing before a pause follows."""
ABSENT_S: Final = 30.0
"""The pause before reading the log again for a Node that the read model lacks."""
FORBIDDEN_S: Final = 5.0
"""The pause before retrying an action that this account has no right to do."""


class ReconcileLoop:
    """Compares each key that is woken, while this replica may act.

    forbidden: why the API server forbids an action, as one line, by the action that was tried.
    """

    def __init__(
        self,
        place: Place,
        work: Work,
        bus: Bus,
        view: ClusterView,
        performer: Performer,
        telemetry: Telemetry,
    ) -> None:
        self.forbidden: dict[str, str] = {}
        self._place, self._work, self._bus = place, work, bus
        self._view, self._performer, self._telemetry = view, performer, telemetry
        self._refusals = Refusals(bus.model, view, performer.perform, telemetry.log)
        self._clock = asyncio.get_running_loop().time
        self._rounds: dict[Key, int] = {}

    async def reconcile(self, key: Key) -> None:
        """Compare both sides of a key once; after a failure, try again after a pause."""
        if self._bus.obstacle or self._view.fault(key.kind):
            return  # All keys are woken once both sides are known again.
        began = time.monotonic()
        try:
            actions = await self._missing(key)
            result = await self._carry_out(key, actions)
        except ApiFailure as failure:
            self._retry_later(key, failure)
        except (ApiUnreachable, *FAULTS) as error:
            pause_s = self._work.retry(key)
            self._log_failure(key, str(error), pause_s)
        except Exception:  # A bug that concerns this object alone.
            self._work.retry(key, least_s=FORBIDDEN_S)
            self._telemetry.log.error("bug", kind=key.kind, name=key.name, exc_info=True)
        else:
            self._refusals.forget(key)
            self._settle(key, result)
        self._telemetry.count_comparison(key.kind, time.monotonic() - began)

    async def _missing(self, key: Key) -> Sequence[Action]:
        if key == WAITING:
            return self._view.missing_reports(self._place)
        if key.kind == "NodePool":
            return await self._missing_for_pool(key)
        return await self._missing_for_node(key, self._bus.commander.attempt(key, self._clock()))

    async def _missing_for_node(self, key: Key, attempt: Attempt | None) -> Sequence[Action]:
        model, memory, found = self._bus.model, self._view.memory, self._find_node(key)
        is_gone = False
        if found is not None and key.name not in model.nodes:
            is_gone = await self._is_gone(key, found)
            found = self._find_node(key)
        wanted, now = model.nodes.get(key.name), self._clock()
        if wanted is None and found is None:
            self._forget(key)
            model.reported.pop(key.name, None)
            memory.forget(key.name)
            self._refusals.forget_node(key.name)
            return ()
        node = NodeView(
            wanted=wanted,
            found=found,
            pods=self._view.pods_of(key.name),
            reported=model.reported.get(key.name, NOTHING_REPORTED),
            attempt=attempt,
            pool_uid=self._pool_uid(key.name),
            is_gone=is_gone,
            claimed=None if found is None else memory.claim(found, wanted, self._log.id),
            last_seen=memory.last_seen(key.name),
            proven=memory.find_proven_key(key.name),
            unwanted_s=self._unwanted_s(key, now),
            no_toleration=self._view.toleration.fault,
        )
        actions = missing_for_node(node, self._place, self._log.id, datetime.now(UTC))
        if not any(isinstance(each, ListPods) for each in actions):
            memory.forget_list(key.name)
        held_until = 0.0 if wanted is None else self._refusals.held_until(wanted, now)
        if not held_until:
            return actions
        self._work.wake_at(key, held_until)
        return [each for each in actions if not set_back_fields(each, found)]

    def _find_node(self, key: Key) -> NodeObject | None:
        return self._view.nodes.store.get(key.name)

    async def _is_gone(self, key: Key, found: NodeObject) -> bool:
        """Whether the read model or the log says that the stay has ended which an object is of."""
        state, log = self._view.memory.record_of(found), self._log
        if state is None or state.log not in ("", log.id):
            return False
        if self._bus.model.is_gone(key.name, state.version):
            return True
        if not state.assignment or not state.log:
            return False
        ended = self._bus.log.has_ended
        if await ended(key.name, state.assignment, state.version, self._oldest):
            return True
        self._work.wake_at(key, self._clock() + ABSENT_S)
        return False

    def _oldest(self) -> int:
        """Return the first position that matters to any Node that the read model lacks."""
        nodes, log, record_of = self._bus.model.nodes, self._log.id, self._view.memory.record_of
        objects = (each for name, each in self._view.nodes.store.items() if name not in nodes)
        states = (state for each in objects if (state := record_of(each)) and state.log == log)
        return min((state.version for state in states), default=self._log.end)

    def _unwanted_s(self, key: Key, now: float) -> float:
        """Return for how many seconds the read model lacks a Node; wake the key once they count."""
        is_wanted = key.name in self._bus.model.nodes
        since = self._view.memory.unwanted_since(key.name, now, is_wanted=is_wanted)
        if not is_wanted and since + ABANDONED_S > now:
            self._work.wake_at(key, since + ABANDONED_S)
        return now - since

    async def _missing_for_pool(self, key: Key) -> Sequence[Action]:
        model, found = self._bus.model, self._view.pool(key.name)
        agreement = None if found is None else agreement_of(found)
        if agreement is not None and agreement.version > self._log.end:
            model.note_end(await self._bus.log.newest_position())
        is_alone = found is not None and key.name not in model.pools
        deleted = await self._bus.log.deletion_of(key.name) if is_alone else NOT_DELETED
        attempt = self._bus.commander.attempt(key, self._clock(), deleted.position)
        origins: Sequence[Origin] = ()
        is_hidden = is_alone and agreement is not None and agreement.uid != ""
        if agreement is not None and (is_hidden or is_unresolved(agreement, attempt)):
            origins = await self._bus.log.origins_of(key.name, agreement.version)
            if is_hidden and agreement.log == self._log.id and not (origins or deleted.position):
                # The log does not say whether it was deleted: it must not be created again.
                self._bus.log.check_reaches(agreement.version)
            attempt = self._bus.commander.attempt(key, self._clock(), deleted.position)
        wanted, found = model.pools.get(key.name), self._view.pool(key.name)
        if wanted is None and found is None:
            self._forget(key)
            self._view.forget_pool(key.name)
            return ()
        facts = Facts(deleted, self._view.removed_pool(key.name), origins=origins)
        args = (key.name, wanted, found, attempt, self._log, self._place)
        actions = missing_for_pool(*args, facts)
        item = found or facts.removed
        if item is None or not any(is_deletion(action) for action in actions):
            return actions
        change = await self._change_of_kind(item)
        if change is KindChange.MADE_AGAIN and found is None:
            # The object was deleted with its kind, not by a person: the NodePool gets a new one.
            self._view.forget_pool(key.name)
            return missing_for_pool(*args, replace(facts, removed=None))
        return missing_for_pool(*args, replace(facts, is_leaving=change is not KindChange.NONE))

    async def _change_of_kind(self, item: PoolObject) -> KindChange:
        """Return what happened to the kind; raise ApiFailure if the API server does not say."""
        tried = "get the kind NodePool"
        try:
            change = await self._view.kind.since(item)
        except ApiFailure as failure:
            self.forbidden |= {tried: failure.message} if failure.lacks_right else {}
            raise
        self.forbidden.pop(tried, None)
        return change

    @property
    def _log(self) -> Log:
        log = self._bus.model.log
        if log is None:
            raise InDoubt("the read model is being read anew")
        return log

    def _pool_uid(self, node: str) -> str:
        wanted = self._bus.model.nodes.get(node)
        return "" if wanted is None else self._view.pool_uid(wanted.pool)

    def _forget(self, key: Key) -> None:
        self._bus.commander.forget(key)
        self._refusals.forget(key)
        self._rounds.pop(key, None)
        self._work.queue.clear_failures(key)

    async def _carry_out(self, key: Key, actions: Sequence[Action]) -> Result | None:
        """Carry out actions; return the worst result, in order stale, changed, sent; else None.

        A Pod that cannot be ended does not stop the actions that follow. Any other failure stops
        them, except actions that end Pods: a drain may have little time.
        """
        worst: Result | None = None
        failed: ApiFailure | None = None
        is_stopped = False
        for action in actions:
            is_of_pod = ends_pod(action)
            if is_stopped and not is_of_pod:
                continue
            tried = f"{type(action).__name__} {getattr(action, 'kind', '')}"
            try:
                result = await self._perform(key, action)
            except ApiFailure as failure:
                if failure.lacks_right:
                    self.forbidden[tried] = failure.message
                if isinstance(action, RecordEvent) and (failure.lacks_right or failure.is_lasting):
                    # A failure to record an Event must not stop the other actions.
                    self._telemetry.log.warning("event not recorded", cause=failure.message)
                    continue
                await self._refusals.tell(key, action, failure)
                is_stopped = is_stopped or not is_of_pod
                failed = failed or failure
                continue
            self.forbidden.pop(tried, None)
            if result is Result.STALE and not is_of_pod:
                return result
            if worst is not Result.CHANGED:
                worst = result
        if failed is not None:
            raise failed
        return worst

    async def _perform(self, key: Key, action: Action) -> Result:
        """Carry out an action, and record an Event if a Node is set back too often."""
        fields = set_back_fields(action, self._find_node(key)) if key.kind == "Node" else ()
        result = await self._performer.perform(key, action)
        wanted = self._bus.model.nodes.get(key.name)
        if fields and result is Result.CHANGED and wanted is not None:
            await self._refusals.tell_set_back(key, fields, wanted, self._clock())
        return result

    def _settle(self, key: Key, result: Result | None) -> None:
        rounds = self._rounds.get(key, 0) + 1
        if result is Result.STALE:
            self._work.retry(key)
        elif result is Result.CHANGED and rounds < ROUNDS_MAX:
            self._rounds[key] = rounds
            self._work.wake(key)
            return
        elif result is Result.CHANGED:
            pause_s = self._work.retry(key, least_s=FORBIDDEN_S)
            self._log_failure(key, "it does not come to rest", pause_s)
        else:
            self._work.queue.clear_failures(key)
        self._rounds.pop(key, None)

    def _retry_later(self, key: Key, failure: ApiFailure) -> None:
        least_s = max(failure.retry_after_s, FORBIDDEN_S if failure.lacks_right else 0.0)
        pause_s = self._work.retry(key, least_s=least_s)
        self._log_failure(key, failure.message, pause_s)

    def _log_failure(self, key: Key, cause: str, pause_s: float) -> None:
        self._telemetry.log.warning(
            "not done", kind=key.kind, name=key.name, cause=cause, again_in_s=round(pause_s)
        )
