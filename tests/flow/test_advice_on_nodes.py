"""What is advised about unhealthy Nodes is what becomes of them if the advice is followed."""

import pytest

from flow.test_explanations import explained, titles
from nodepool.cli.documents import field
from nodepool.explanation.remedies import DrainNode
from support.constants import RACK
from support.manifests import rack_affinity
from support.world_harness import WorldHarness


def helps(world: WorldHarness, pool: str = "train") -> list[tuple[str, ...]]:
    """All that would help against each cause, with the numbers of the machines."""
    causes = explained(world, pool, is_now=True).causes
    return [tuple(map(world.with_machine_numbers, cause.helps)) for cause in causes]


@pytest.mark.parametrize(
    ("machines", "target", "then", "left"),
    [
        (3, 2, "it is then cured or replaced", 2),
        (
            2,
            2,
            "no machine is free for it, so train lacks the Node until one is freed, "
            "repaired or added",
            1,
        ),
        (3, 1, "it then leaves, and train has enough Nodes without it", 1),
    ],
)
def test_a_drained_node_is_said_to_be_replaced_only_if_a_machine_is_free_for_it(
    world: WorldHarness, machines: int, target: int, then: str, left: int
) -> None:
    # given an unhealthy Node, which stays since both Nodes are at work
    world.given_data_center(machines)
    world.apply("train", 2)
    for node in ("n1", "n2"):
        world.run_pod(node)
    world.scale("train", target)
    world.break_machines("n1", fault="gpu-lost")
    before = helps(world)[-1]

    # when the advice is followed
    world.command_node("DrainNode", "train", "n1", force=True)
    world.pass_time(minutes=1)

    assert before == (f"'nodepool drain n1 --force' ends what runs there; {then}",)
    assert field(world.node_pool("train"), "status", "currentNodes") == left


def test_a_drained_node_with_an_affinity_is_not_said_to_be_replaced_by_any_machine(
    world: WorldHarness,
) -> None:
    # given free machines that do not satisfy the node affinity
    world.given_cluster()
    world.given_quota(9)
    world.given_machines(1, labels={RACK: "r1"})
    world.given_machines(5, labels={RACK: "r2"})
    world.apply("train", 1, affinity=rack_affinity("r1"))
    world.break_machines("n1", fault="gpu-lost")
    (health,) = explained(world, "train").causes

    world.command_node("DrainNode", "train", "n1")
    world.pass_time(minutes=1)

    then = "it is then replaced if a free machine satisfies the node affinity"
    node = world.machine_name("n1")
    assert health.helps == (f"'nodepool drain {node}' ends what runs there; {then}",)
    assert [remedy.action for remedy in health.remedies] == [DrainNode(node)]
    assert titles(explained(world, "train")) == ["Capacity is NoneAvailableNodeAffinity"]
