"""Records Events about what keeps a cluster from its wanted state, while that lasts."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from agent.actions import Action, Create, Delete, Evict, Kind, Patch, RecordEvent
from agent.host.model import BusModel
from agent.host.view import ClusterView
from agent.host.work import Key
from agent.nodes.objects import POOL_LABEL, WantedNode
from agent.nodes.set_backs import SetBacks, set_back_event
from agent.reading import digest
from nodepool.contract.keys import pod_name
from nodepool.host.logs import Logger
from nodepool.kube.failures import ApiFailure, ApiUnreachable

TOLD_MAX: Final = 10
"""The most objects of a NodePool with a recorded refusal: a policy may refuse every Node."""
Refusable = Create | Patch | Delete | Evict
"""The actions that change an object of the cluster."""
_PRECONDITIONS: Final = ("uid", "resourceVersion")
_VERBS: Final[Mapping[type[Refusable], tuple[str, str]]] = {
    Create: ("Create", "created"),
    Patch: ("Update", "updated"),
    Delete: ("Delete", "deleted"),
    Evict: ("Eviction", "evicted"),
}


class Refusals:
    """Records, at the NodePool of an object, each refusal and each Node set back too often.

    held_until: returns until when a Node is not set back, see `agent.nodes.set_backs`.
    """

    def __init__(
        self,
        model: BusModel,
        view: ClusterView,
        record: Callable[[Key, RecordEvent], Awaitable[object]],
        log: Logger,
    ) -> None:
        self._model, self._view, self._record, self._log = model, view, record, log
        self._told: dict[Key, str] = {}
        self._set_backs = SetBacks()
        self.held_until = self._set_backs.held_until

    async def tell(self, key: Key, action: Action, failure: ApiFailure) -> None:
        """Record why an action was refused; record nothing if another try may succeed."""
        if not failure.is_lasting or not isinstance(action, Refusable):
            return
        regarding = self._regarding(key)
        others = (name for each, name in self._told.items() if each != key)
        if sum(name == regarding[1] for name in others) >= TOLD_MAX:
            return
        self._told[key] = regarding[1]
        event = refusal_event(regarding, action, failure.fields, failure.message)
        await self._try(key, event)

    async def tell_set_back(
        self, key: Key, fields: Sequence[str], wanted: WantedNode, now: float
    ) -> None:
        """Note that a Node was set back in these fields; record an Event if a pause begins."""
        if not self._set_backs.note_patch(wanted, now):
            return
        self._log.warning("set back too often", name=key.name, fields=fields)
        await self._try(key, set_back_event(self._regarding(key), key.name, fields))

    async def _try(self, key: Key, event: RecordEvent) -> None:
        try:
            await self._record(key, event)
        except (ApiFailure, ApiUnreachable) as error:  # The next refusal tries again.
            self._log.warning("event not recorded", cause=str(error))

    def forget(self, key: Key) -> None:
        """Forget the refusals of this object."""
        self._told.pop(key, None)

    def forget_node(self, name: str) -> None:
        """Forget a Node that is gone."""
        self._set_backs.forget(name)

    def _regarding(self, key: Key) -> tuple[Kind, str, str]:
        """Return the NodePool of an object; the Node itself if it belongs to no NodePool."""
        if key.kind == "NodePool":
            return key.kind, key.name, self._view.pool_uid(key.name)
        wanted, found = self._model.nodes.get(key.name), self._view.nodes.store.get(key.name)
        labels = {} if found is None else found.labels
        pool = labels.get(POOL_LABEL, "") if wanted is None else wanted.pool
        if pool:
            return "NodePool", pool, self._view.pool_uid(pool)
        return key.kind, key.name, key.name if found is None else found.uid


def refusal_event(
    regarding: tuple[Kind, str, str], action: Refusable, fields: Sequence[str], why: str
) -> RecordEvent:
    """Return the Event with the object, the fields and the reason; equal for equal refusals.

    regarding: kind, name and uid of the object that it is recorded about.
    fields: those that `why` names; where it names none, those that a patch sets are added.
    why: what the API server said.
    """
    kind, name, uid = regarding
    noun, done = _VERBS[type(action)]
    named = "" if fields else ", ".join(_fields(action))
    message = f"{_object(action)} cannot be {done}{f' ({named})' if named else ''}: {why}"
    reason = f"{noun}Refused"
    key = f"refused.{digest([uid, reason, message])}"
    return RecordEvent(kind, name, uid, "Warning", reason, message, key)


def _object(action: Refusable) -> str:
    match action:
        case Create(kind, document):
            metadata = document.get("metadata")
            return f"{kind} {metadata.get('name') if isinstance(metadata, Mapping) else ''}"
        case Evict(namespace, name):
            return f"Pod {pod_name(namespace, name)}"
        case Delete(kind, name, namespace=namespace) if namespace:
            return f"{kind} {pod_name(namespace, name)}"
        case Delete(kind, name) | Patch(kind, name):
            return f"{kind} {name}"


def _fields(action: Refusable) -> Sequence[str]:
    """Return the fields that a patch sets, two levels deep, without its preconditions."""
    if not isinstance(action, Patch):
        return ()
    return sorted(
        f"{part}.{name}"
        for part, values in action.patch.items()
        for name in (values if isinstance(values, Mapping) else ())
        if part != "metadata" or name not in _PRECONDITIONS
    )
