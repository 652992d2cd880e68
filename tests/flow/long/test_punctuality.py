"""Very many preemptions at once: none early, all in time, in as few steps as there can be."""

import sys
from collections import Counter
from datetime import timedelta

import pytest

from nodepool.client.preemptions import Preemption, Preemptions
from nodepool.contract.events import CWDrainNode, CWNodeDeleted, PreemptionInProgress
from nodepool.contract.messages import Message
from nodepool.local.server import NatsServer
from support.harness import Harness
from support.live import LiveHarness
from support.world_harness import WorldHarness

NODES, FEW = 300, 60
WAKES_MAX = 8
"""How many wakes may lead to a stage of all: each takes some hundreds that are due by then."""
LATE = timedelta(seconds=1)
"""How late a stage may be."""


def causes(world: WorldHarness, kind: type[Message]) -> Counter[str]:
    """How many messages the events of a kind follow from, by the end of their subjects."""
    positions = {each.causeposition for each in world.envelopes() if isinstance(each.data, kind)}
    subjects = (world.entries()[position - 1].subject for position in positions if position)
    return Counter(subject.removeprefix("np.evt.") for subject in subjects)


def preemptions(harness: Harness) -> list[Preemption]:
    """All preemptions, with the moments at which the log stored their stages."""
    found = Preemptions()
    found.read(harness.entries())
    return found.all()


def is_in_time(late: timedelta | None) -> bool:
    """Whether a stage came, was not early, and was so late at most."""
    return late is not None and late <= LATE


def test_preemptions_at_once_are_neither_early_nor_late_and_take_few_steps(
    world: WorldHarness,
) -> None:
    # given spot Nodes whose Pods would run on for longer than a preemption may take
    world.given_data_center(machines=NODES, quota=NODES)
    world.apply("cheap", NODES, computeClass="spot")
    with world.sent_together():
        for node in world.nodes("cheap"):
            world.run_pod(node, graceS=3600)

    # when an operator takes them all back
    world.reclaim(NODES)
    world.pass_time(minutes=8)

    # then each of them is drained and gone at its moment
    stages = [(each.drain_late, each.end_late, each.lost) for each in preemptions(world)]
    assert len(stages) == NODES
    assert all(is_in_time(drain) and is_in_time(end) and lost == 1 for drain, end, lost in stages)

    # and few wakes announce the drains, and lead to the ends without an announcement
    announced, begun, ended = (
        causes(world, kind) for kind in (PreemptionInProgress, CWDrainNode, CWNodeDeleted)
    )
    assert begun == {"preemption.acme.prod.cheap.PreemptionInProgress": NODES}
    assert set(announced) == {"clock.preemption._._.Wake"}
    assert set(ended) == {"clock.lifecycle._._.Wake"}
    assert max(announced.total(), ended.total()) <= WAKES_MAX


def test_preemptions_at_once_are_not_early_and_all_end_although_the_server_is_killed(
    monkeypatch: pytest.MonkeyPatch, live: LiveHarness, server: NatsServer
) -> None:
    # given a timetable of seconds, and spot Nodes whose Pods would run on for longer
    shorten(monkeypatch, DRAIN_AFTER=timedelta(seconds=3), GONE_AFTER=timedelta(seconds=8))
    live.given_data_center(machines=FEW, quota=FEW)
    live.apply("cheap", FEW, computeClass="spot")
    with live.sent_together():
        for number in range(FEW):
            live.run_pod(f"n{number + 1}", graceS=3600)

    # when they are all taken back, and the server is killed before the drains and before the ends
    live.reclaim(FEW)
    restart(server)
    drained = awaited(live, CWDrainNode)
    restart(server)
    gone = awaited(live, CWNodeDeleted)

    # then each stage came once, and none was early
    found = preemptions(live)
    stages = [(each.drain_late, each.end_late, each.lost) for each in found]
    assert (drained, gone, len(stages)) == (FEW, FEW, FEW)
    assert all(None not in stage and stage[-1] == 1 for stage in stages), stages


def shorten(monkeypatch: pytest.MonkeyPatch, **timetable: timedelta) -> None:
    """Replace moments of the timetable in every module that has imported them by name."""
    for module in [*sys.modules.values()]:
        for name in timetable.keys() & vars(module).keys():
            monkeypatch.setattr(module, name, timetable[name])


def restart(server: NatsServer) -> None:
    """The server is killed, and started again on its data."""
    server.kill()
    server.start()


def awaited(live: LiveHarness, kind: type[Message]) -> int:
    """How many events of a kind there are, once there are as many as Nodes."""
    while (count := sum(isinstance(each.data, kind) for each in live.envelopes())) < FEW:
        live.run_until_idle()
    return count
