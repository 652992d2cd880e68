"""Which objects count as deleted by somebody, however the agent hears of it."""

import asyncio
import json
from collections.abc import Mapping, Sequence

import pytest

from agent.host.declared import KindChange, PoolKind
from agent.host.model import BusModel
from agent.host.view import ClusterView
from agent.host.work import Work
from agent.pools.objects import PoolObject
from nodepool.nats.wire.waiting import cancel
from support.agent.answered import answered, unanswered
from support.agent_nodes import PLACE

BOUND_S = 10.0
Item = Mapping[str, object]
NOTHING: Sequence[Item] = ()


def node_pool(version: int, *, deleting: bool) -> Item:
    """The object of the NodePool `train`."""
    moment = {"deletionTimestamp": "2026-01-02T03:04:05Z"} if deleting else {}
    metadata = {"name": "train", "uid": "u1", "resourceVersion": str(version), "generation": 1}
    return {"metadata": {**metadata, **moment}, "spec": {}}


async def removed_after(*lists: tuple[int, Sequence[Item]]) -> bool:
    """Whether `train` counts as deleted after lists of these versions, one after the other.

    The API server knows no version long enough for a watch to begin there.
    """
    left, ended = list(lists), asyncio.Event()

    def answer(path: str) -> tuple[int, bytes]:
        if "watch=1" in path:
            return 410, b'{"reason": "Expired"}'
        if not left:
            ended.set()
            return 500, b"that was the last list"
        version, items = left.pop(0)
        page = {"metadata": {"resourceVersion": str(version)}, "items": items}
        return 200, json.dumps(page).encode()

    async with answered(answer) as api, unanswered() as (_, log):
        model = BusModel(lambda _: None)
        view = ClusterView(api, PLACE, model, Work(lambda: True), lambda: None, log)
        running = asyncio.create_task(view.pools.run())
        async with asyncio.timeout(BOUND_S):
            await ended.wait()
        await cancel(running)
    return view.removed_pool("train") is not None


async def test_an_object_that_was_being_deleted_is_so_where_a_new_list_lacks_it() -> None:
    deleting, gone = (4, [node_pool(3, deleting=True)]), (6, NOTHING)

    assert await removed_after(deleting, gone)


async def test_an_object_that_nobody_has_deleted_may_be_lacking_for_other_reasons() -> None:
    kept, gone = (4, [node_pool(3, deleting=False)]), (6, NOTHING)

    assert not await removed_after(kept, gone)


async def test_what_a_restored_backup_lacks_was_not_deleted() -> None:
    deleting, gone = (4, [node_pool(3, deleting=True)]), (2, NOTHING)

    assert not await removed_after(deleting, gone)


async def test_an_object_that_is_there_again_was_not_deleted() -> None:
    deleting, gone, back = (
        (4, [node_pool(3, deleting=True)]),
        (6, NOTHING),
        (8, [node_pool(7, deleting=False)]),
    )

    assert not await removed_after(deleting, gone, back)


NOON, LATER = "2026-01-02T12:00:00Z", "2026-01-02T12:00:02Z"
HOUR = "2026-01-02T13:00:00Z"


@pytest.mark.parametrize(
    ("created", "deleted", "definition", "change"),
    [
        pytest.param(
            LATER, HOUR, {"creationTimestamp": NOON}, KindChange.NONE, id="deleted-by-somebody"
        ),
        pytest.param(
            NOON,
            HOUR,
            {"creationTimestamp": LATER},
            KindChange.NONE,
            id="created-by-a-clock-that-is-slow",
        ),
        pytest.param(
            NOON, LATER, {"creationTimestamp": HOUR}, KindChange.MADE_AGAIN, id="kind-made-again"
        ),
        pytest.param(
            NOON,
            LATER,
            {"creationTimestamp": LATER},
            KindChange.MADE_AGAIN,
            id="kind-made-again-in-that-second",
        ),
        pytest.param(
            "2026-01-01T12:00:00Z",
            LATER,
            {"creationTimestamp": NOON},
            KindChange.MADE_AGAIN,
            id="kind-made-again-by-a-clock-that-is-slow",
        ),
        pytest.param(
            NOON, "", {"creationTimestamp": LATER}, KindChange.MADE_AGAIN, id="gone-at-once"
        ),
        pytest.param(LATER, "", {"creationTimestamp": NOON}, KindChange.NONE, id="deleted-at-once"),
        pytest.param(
            LATER,
            HOUR,
            {"creationTimestamp": NOON, "deletionTimestamp": HOUR},
            KindChange.LEAVING,
            id="kind-being-deleted",
        ),
        pytest.param(LATER, HOUR, None, KindChange.LEAVING, id="no-kind"),
    ],
)
async def test_an_object_goes_with_its_kind(
    created: str, deleted: str, definition: Item | None, change: KindChange
) -> None:
    found = PoolObject("train", "u1", 1, "5", {}, created=created, deleted=deleted)
    answer = 404, b'{"reason": "NotFound"}'
    if definition is not None:
        answer = 200, json.dumps({"metadata": definition}).encode()
    async with answered(lambda _path: answer) as api:
        assert await PoolKind(api).since(found) is change
