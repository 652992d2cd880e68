"""Of how many refusals the agent tells, and at which object."""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

import pytest

from agent.actions import Patch, RecordEvent
from agent.host.model import BusModel
from agent.host.refusals import TOLD_MAX, Refusals
from agent.host.view import ClusterView
from agent.host.work import Key, Work, node_key, pool_key
from agent.nodes.objects import POOL_LABEL
from nodepool.host.logs import Logger
from nodepool.kube.api import Api
from nodepool.kube.failures import ApiFailure
from support.agent.answered import unanswered
from support.agent_nodes import PLACE

REFUSED = ApiFailure(422, {"message": "no"}, 0.0)
NODES = [node_key(f"n{number:02}") for number in range(TOLD_MAX + 2)]
OTHER = node_key("other")
FOREIGN = node_key("foreign")
POOLS = {**dict.fromkeys((key.name for key in NODES), "train"), OTHER.name: "serve"}


class Told:
    """What the agent of a cluster tells, which has the NodePool `train`, and Nodes of two."""

    def __init__(self, api: Api, log: Logger, failure: ApiFailure | None) -> None:
        model = BusModel(lambda _key: None)
        view = ClusterView(api, PLACE, model, Work(lambda: True), lambda: None, log)
        view.wrote("NodePool", _object("NodePool", "train"))
        for name in (*POOLS, FOREIGN.name):
            view.wrote("Node", _object("Node", name, POOLS.get(name, "")))
        self.refusals = Refusals(model, view, self._record, log)
        self.events: list[RecordEvent] = []
        self._failure = failure

    async def _record(self, _key: Key, event: RecordEvent) -> None:
        if self._failure is not None:
            raise self._failure
        self.events.append(event)

    async def refuse(self, keys: Iterable[Key]) -> Sequence[tuple[str, str, str]]:
        """Kind, name and uid of the objects at which it is told that these are refused."""
        before = len(self.events)
        for key in keys:
            await self.refusals.tell(key, Patch(key.kind, key.name, {"spec": {}}), REFUSED)
        return [(each.kind, each.name, each.uid) for each in self.events[before:]]


@asynccontextmanager
async def telling(failure: ApiFailure | None = None) -> AsyncIterator[Told]:
    """An agent that nobody answers; failure: what each Event is refused with."""
    async with unanswered() as (api, log):
        yield Told(api, log, failure)


def _object(kind: str, name: str, pool: str = "") -> dict[str, object]:
    labels = {POOL_LABEL: pool} if pool else {}
    metadata = {"name": name, "uid": f"u-{name}", "resourceVersion": "1", "labels": labels}
    return {"kind": kind, "metadata": metadata, "spec": {}, "status": {}}


async def test_a_refusal_is_told_at_the_nodepool_and_at_the_node_where_there_is_none() -> None:
    async with telling() as told:
        seen = await told.refuse([NODES[0], pool_key("train"), OTHER, FOREIGN])

    assert seen == [
        ("NodePool", "train", "u-train"),
        ("NodePool", "train", "u-train"),
        ("NodePool", "serve", ""),
        ("Node", "foreign", "u-foreign"),
    ]


async def test_where_every_node_is_refused_it_is_told_of_some_of_each_nodepool() -> None:
    async with telling() as told:
        assert len(await told.refuse(NODES)) == TOLD_MAX
        assert len(await told.refuse([OTHER])) == 1
        # The same Nodes are told of again, with Events of the same names.
        assert len(await told.refuse(NODES)) == TOLD_MAX
        # Another Node is told of once a Node is not refused any more.
        told.refusals.forget(NODES[0])
        assert len(await told.refuse(NODES[1:])) == TOLD_MAX


@pytest.mark.parametrize("code", [409, 429, 500])
async def test_what_is_refused_for_the_moment_is_not_told(code: int) -> None:
    async with telling() as told:
        await told.refusals.tell(NODES[0], Patch("Node", "n00", {}), ApiFailure(code, {}, 0.0))
        assert told.events == []


async def test_an_event_that_is_refused_itself_keeps_nothing_from_being_done() -> None:
    async with telling(REFUSED) as told:
        assert await told.refuse([NODES[0]]) == []
