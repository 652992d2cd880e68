"""One long story told from its beginning; prints the whole log and every state it led to.

`python -m support.replay` lets another process tell the same story.
"""

import sys
from collections.abc import Iterator

from nodepool.engine.snapshot import dump
from support.stage import PREFER_IDLE, WorldStage


def tell() -> WorldStage:
    """A story in which every service has much to say."""
    world = WorldStage()
    world.given_house(machines=30, quota=25)
    world.given_machines(10, labels={"node.coreweave.cloud/rack": "r7"}, boot_s=300)
    world.break_machines("n1", "n2", fault="boot")
    world.break_machines("n3", fault="silence")
    with world.together():
        world.apply("train", 12, nodeLabels={f"label-{n}": "x" for n in range(20)})
        world.apply("serve", 8, lifecycle=PREFER_IDLE)
        world.apply("cheap", 4, computeClass="spot", schedulingPriority={"value": -1})
        world.apply("greedy", 9)
    world.pass_time(minutes=40)
    for number, node in enumerate(world.nodes("serve")):
        world.run_pod(node, f"job-{number}", interruption="graceful", graceS=30 * number)
    with world.together():
        for node in world.nodes("cheap"):
            world.preempt("cheap", node)
        world.scale("serve", 2)
        world.apply("train", 6, nodeLabels={f"label-{n}": "y" for n in range(20)})
        world.repair("n1", "n2")
    world.pass_time(minutes=3)
    world.delete("train")
    world.given_quota(40)
    world.pass_time(minutes=10)
    assert world.replay_differs() == []
    return world


def lines() -> Iterator[bytes]:
    """The log of the story, entry by entry, and then every state, line by line."""
    world = tell().world
    for entry in world.log.entries:
        yield b"%d %s %s\n" % (entry.position, entry.subject.encode(), entry.content)
    for host in world.hosts:
        for line in dump(host.replica.state):
            yield b"%s %s\n" % (host.service.name.encode(), line)


if __name__ == "__main__":
    sys.stdout.buffer.writelines(lines())
