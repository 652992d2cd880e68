"""Comparing one NodePool or Node, and carrying out what is missing."""

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from nats.errors import Error as NatsError

from agent.actions import Action, Evict, Tell
from agent.agreement import agreement_of
from agent.bus import Attempt, Log
from agent.host.api import Failure, Unreachable
from agent.host.commander import Commander
from agent.host.keys import Key
from agent.host.performing import Performer, Result
from agent.host.session import Bus
from agent.host.telemetry import Telemetry
from agent.host.view import ClusterView
from agent.host.work import Work
from agent.nodes import NodeView, missing_for_node
from agent.place import Place
from agent.pools import missing_for_pool
from nodepool.nats.errors import InDoubt, ServerRefusal

ROUNDS_MAX: Final = 10
"""After so many comparisons in a row, each of which found something missing, a pause follows."""
NOT_ALLOWED: Final = (401, 403)
ABSENT_S: Final = 60.0
"""How long a Node that the read model lacks is left alone: one that is made anew may come back."""
FORBIDDEN_S: Final = 5.0
"""The pause before an action is tried again that this account may not do."""


class Reconciler:
    """Compares what is woken, while this replica may act.

    forbidden: what this account may not do, each as one line by what was tried.
    """

    def __init__(
        self,
        place: Place,
        work: Work,
        bus: Bus,
        commander: Commander,
        view: ClusterView,
        performer: Performer,
        telemetry: Telemetry,
    ) -> None:
        self.forbidden: dict[str, str] = {}
        self._place, self._work, self._bus, self._commander = place, work, bus, commander
        self._view, self._performer, self._telemetry = view, performer, telemetry
        self._clock = asyncio.get_running_loop().time
        self._rounds: dict[Key, int] = {}

    async def reconcile(self, key: Key) -> None:
        """One comparison; what fails is tried again after a pause."""
        if self._bus.obstacle or self._view.fault(key.kind):
            return  # All keys are woken once both sides are known again.
        began = time.monotonic()
        try:
            actions = await self._missing(key)
            result = await self._carry_out(key, actions)
        except Failure as failure:
            self._refused(key, failure)
        except (Unreachable, InDoubt, ServerRefusal, NatsError, OSError) as error:
            pause_s = self._work.retry(key)
            self._log_failure(key, str(error), pause_s)
        except Exception:  # A bug that concerns this object alone.
            self._work.retry(key, least_s=FORBIDDEN_S)
            self._telemetry.log.error("bug", kind=key.kind, name=key.name, exc_info=True)
        else:
            self._settle(key, result)
        self._telemetry.reconciled(key.kind, time.monotonic() - began)

    async def _missing(self, key: Key) -> Sequence[Action]:
        attempt = self._commander.attempt(key, self._clock())
        if key.kind == "NodePool":
            return await self._missing_for_pool(key, attempt)
        model, log = self._bus.model, self._log
        node = NodeView(
            wanted=model.nodes.get(key.name),
            found=self._view.nodes.store.get(key.name),
            pods=self._view.pods_of(key.name),
            reported=model.reported(key.name),
            attempt=attempt,
            pool_uid=self._pool_uid(key.name),
        )
        if node.wanted is None and node.found is None:
            self._forget(key)
            model.forget(key.name)
            return ()
        if node.wanted is None and not model.is_gone(key.name):
            due = self._bus.synced_at + ABSENT_S
            if self._clock() < due:
                self._work.wake_at(key, due)
                return ()
        return missing_for_node(node, self._place, log.id, datetime.now(UTC))

    async def _missing_for_pool(self, key: Key, attempt: Attempt | None) -> Sequence[Action]:
        model, found = self._bus.model, self._view.pools.store.get(key.name)
        if found is not None:
            agreement = agreement_of(found)
            if agreement is not None and agreement.version > self._log.end:
                model.note_end(await self._bus.end_of_log())
        wanted, deleted = model.pools.get(key.name), None
        if wanted is None and found is not None:
            deleted = await self._bus.deletion_of(key.name)
            wanted, found = model.pools.get(key.name), self._view.pools.store.get(key.name)
        if wanted is None and found is None:
            self._forget(key)
            return ()
        return missing_for_pool(key.name, wanted, found, attempt, self._log, self._place, deleted)

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
        self._commander.forget(key)
        self._rounds.pop(key, None)
        self._work.queue.succeeded(key)

    async def _carry_out(self, key: Key, actions: Sequence[Action]) -> Result | None:
        """The results of all actions as one: stale before changed before sent; None for none.

        A Pod that cannot be evicted does not keep what follows from being done.
        """
        worst: Result | None = None
        failed: Failure | None = None
        for action in actions:
            tried = f"{type(action).__name__} {getattr(action, 'kind', '')}"
            try:
                result = await self._performer.perform(key, action)
            except Failure as failure:
                if failure.code in NOT_ALLOWED:
                    self.forbidden[tried] = failure.message
                    if isinstance(action, Tell):
                        # What is done is not to depend on whether it can be told.
                        self._telemetry.log.warning("not told", cause=failure.message)
                        continue
                if not isinstance(action, Evict):
                    raise
                failed = failure
                continue
            self.forbidden.pop(tried, None)
            if result is Result.STALE and not isinstance(action, Evict):
                return result
            if worst is not Result.CHANGED:
                worst = result
        if failed is not None:
            raise failed
        return worst

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
            self._work.queue.succeeded(key)
        self._rounds.pop(key, None)

    def _refused(self, key: Key, failure: Failure) -> None:
        is_forbidden = failure.code in NOT_ALLOWED
        least_s = max(failure.retry_after_s, FORBIDDEN_S if is_forbidden else 0.0)
        pause_s = self._work.retry(key, least_s=least_s)
        self._log_failure(key, failure.message, pause_s)

    def _log_failure(self, key: Key, cause: str, pause_s: float) -> None:
        self._telemetry.log.warning(
            "not done", kind=key.kind, name=key.name, cause=cause, again_in_s=round(pause_s)
        )
