"""What an agent asks the API server for beside its watches."""

import asyncio

from agent.actions import Place
from agent.host.model import BusModel
from agent.host.view import ClusterView
from agent.host.work import Work
from support.agent.answered import answered, unanswered

PLACE = Place("acme", "prod", "zone-a")
NO_PODS = b'{"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": []}'


async def test_one_list_of_pods_serves_all_nodes_that_asked_before_it() -> None:
    # given some Nodes whose Pods must be listed
    paths, clock = list[str](), asyncio.get_running_loop().time

    def reply(path: str) -> tuple[int, bytes]:
        paths.append(path)
        return 200, NO_PODS

    async with answered(reply) as api, unanswered() as (_, lines):
        model, work = BusModel(lambda _key: None), Work(lambda: True)
        view = ClusterView(api, PLACE, model, work, lambda: None, lines)
        names = [f"n{number}" for number in range(9)]
        for name in names:
            view.memory.list_at(name, "cordoned", 0.0)

        # when all need their list now, when one needs a later list, and when it is alone
        counts, now = list[int](), clock()
        await asyncio.gather(*(view.list_pods(name, now) for name in names))
        counts.append(len(paths))
        await view.list_pods("n0", clock())
        counts.append(len(paths))
        for name in names[1:]:
            view.memory.note_list(name, "cordoned")
        await view.list_pods("n0", now)
        counts.append(len(paths))

    # then each list is as late as it has to be, and of one Node only where that is less
    assert counts == [1, 2, 3]
    assert ["nodeName%3Dn0" in path for path in paths] == [False, False, True]
