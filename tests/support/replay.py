"""A fixed scenario in which every service has much to do; prints its log and what is folded.

`python -m support.replay` runs it in a process of its own, so that two processes can be compared.
"""

import sys
from collections.abc import Iterator
from functools import cache

from nodepool.contract.log import Entry
from nodepool.engine.snapshot import dump
from support.constants import PREFER_IDLE, RACK
from support.world_harness import WorldHarness


def run_scenario() -> WorldHarness:
    """Runs the scenario; the harness as it stands at the end."""
    world = WorldHarness()
    world.given_data_center(machines=30, quota=25)
    world.given_machines(10, labels={RACK: "r7"}, boot_s=300)
    world.break_machines("n1", "n2", fault="boot")
    world.break_machines("n3", fault="silence")
    with world.sent_together():
        world.apply("train", 12, nodeLabels={f"label-{n}": "x" for n in range(20)})
        world.apply("serve", 8, lifecycle=PREFER_IDLE)
        world.apply("cheap", 4, computeClass="spot", schedulingPriority={"value": -1})
        world.apply("greedy", 9)
    world.pass_time(minutes=40)
    for number, node in enumerate(world.nodes("serve")):
        world.run_pod(node, f"job-{number}", interruption="graceful", graceS=30 * number)
    with world.sent_together():
        for node in world.nodes("cheap"):
            world.preempt("cheap", node)
        world.scale("serve", 2)
        world.apply("train", 6, nodeLabels={f"label-{n}": "y" for n in range(20)})
        world.repair_machines("n1", "n2")
    world.pass_time(minutes=3)
    world.delete("train")
    world.given_quota(40)
    world.pass_time(minutes=10)
    assert world.replay_differs() == []
    return world


@cache
def scenario_log() -> tuple[Entry, ...]:
    """The log of the scenario, for whoever only reads it; a process runs it once."""
    return tuple(run_scenario().world.log.entries)


def lines() -> Iterator[bytes]:
    """Every entry of the log, and then what every service has folded."""
    world = run_scenario().world
    for entry in world.log.entries:
        yield b"%d %s %s\n" % (entry.position, entry.subject.encode(), entry.content)
    for host in world.hosts:
        for line in dump(host.replica.safe):
            yield b"%s %s\n" % (host.service.name.encode(), line)


if __name__ == "__main__":
    sys.stdout.buffer.writelines(lines())
