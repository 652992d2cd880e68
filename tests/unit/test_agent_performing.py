"""How an agent carries out its actions: what it sends at once, and what waits."""

import json
import os
from typing import TYPE_CHECKING, cast

from agent.actions import Patch, Place
from agent.host.model import BusModel
from agent.host.performing import Performer, Result
from agent.host.telemetry import Telemetry
from agent.host.view import ClusterView
from agent.host.work import Work, pool_key
from nodepool.contract.model import API_VERSION
from nodepool.host.settings import Settings
from support.agent.answered import answered

if TYPE_CHECKING:
    from agent.host.session import Bus

PLACE = Place("acme", "prod", "zone-a")
KEY = pool_key("train")


def node_pool(version: int, current: int, reason: str = "UnderTarget") -> dict[str, object]:
    """The object of a NodePool with this status."""
    condition = {"type": "AtTarget", "status": "False", "reason": reason}
    return {
        "apiVersion": API_VERSION,
        "kind": "NodePool",
        "metadata": {"name": "train", "uid": "uid-1", "resourceVersion": str(version)},
        "spec": {},
        "status": {"conditions": [condition], "currentNodes": current},
    }


async def test_a_verdict_is_shown_at_once_and_progress_once_a_second() -> None:
    # given an agent that has seen a NodePool
    documents = [node_pool(2, 1), node_pool(3, 2, "AtTarget")]
    sent = list[str]()

    def reply(path: str) -> tuple[int, bytes]:
        sent.append(path)
        return 200, json.dumps(documents[len(sent) - 1]).encode()

    telemetry = Telemetry(Settings(log_file=os.devnull), PLACE, lambda: ())
    async with answered(reply) as api:
        model, work = BusModel(lambda _key: None), Work(lambda: True)
        view = ClusterView(api, PLACE, model, work, lambda: None, telemetry.log)
        view.wrote("NodePool", node_pool(1, 0))
        # None of these actions says anything on the bus.
        performer = Performer(api, cast("Bus", None), view, telemetry, work)

        # when it is to show progress, more progress, and a verdict
        verdict = {"conditions": [{"type": "AtTarget", "status": "True", "reason": "AtTarget"}]}
        statuses = ({"currentNodes": 1}, {"currentNodes": 2}, {**verdict, "currentNodes": 2})
        results = [
            await performer.perform(KEY, Patch("NodePool", "train", {"status": each}, "status"))
            for each in statuses
        ]
    telemetry.close()

    # then what is only progress waits until a second after the last patch, and is compared again
    assert results == [Result.CHANGED, Result.SENT, Result.CHANGED]
    assert len(sent) == 2
    assert work.queue.next_due() is not None
