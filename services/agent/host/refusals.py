"""What the API server refuses for what is asked, told of as Events while it does."""

from collections.abc import Awaitable, Callable
from typing import Final

from agent.actions import Action, Create, Delete, Evict, Kind, Patch, RecordEvent
from agent.host.api import Failure, Unreachable
from agent.host.keys import Key
from agent.host.model import BusModel
from agent.host.view import ClusterView
from agent.node_documents import POOL_LABEL
from agent.refusals import refusal_event
from nodepool.host.logs import Logger

TOLD_MAX: Final = 10
"""Of how many objects of a NodePool it is told at a time: a policy may refuse every Node."""


class Refusals:
    """Tells of each refusal at the NodePool of the object."""

    def __init__(
        self,
        model: BusModel,
        view: ClusterView,
        record: Callable[[Key, RecordEvent], Awaitable[object]],
        log: Logger,
    ) -> None:
        self._model, self._view, self._record, self._log = model, view, record, log
        self._told: dict[Key, str] = {}

    async def tell(self, key: Key, action: Action, failure: Failure) -> None:
        """Records why an action was refused; nothing where another try may succeed."""
        if not failure.is_lasting or not isinstance(action, Create | Patch | Delete | Evict):
            return
        regarding = self._regarding(key)
        others = (name for each, name in self._told.items() if each != key)
        if sum(name == regarding[1] for name in others) >= TOLD_MAX:
            return
        self._told[key] = regarding[1]
        event = refusal_event(regarding, action, failure.fields, failure.message)
        try:
            await self._record(key, event)
        except (Failure, Unreachable) as error:  # It is tried again with the action.
            self._log.warning("event not recorded", cause=str(error))

    def forget(self, key: Key) -> None:
        """Nothing of this object is refused any more."""
        self._told.pop(key, None)

    def _regarding(self, key: Key) -> tuple[Kind, str, str]:
        """The NodePool of an object; the Node itself where it belongs to none."""
        if key.kind == "NodePool":
            return key.kind, key.name, self._view.pool_uid(key.name)
        wanted, found = self._model.nodes.get(key.name), self._view.nodes.store.get(key.name)
        labels = {} if found is None else found.labels
        pool = labels.get(POOL_LABEL, "") if wanted is None else wanted.pool
        if pool:
            return "NodePool", pool, self._view.pool_uid(pool)
        return key.kind, key.name, key.name if found is None else found.uid
