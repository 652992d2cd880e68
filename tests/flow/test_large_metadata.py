"""Metadata that is large: the log holds it once for a NodePool, and not once for each Node."""

from nodepool.contract.events import CWNodeRegistered, NodeTemplateChanged, NodeUpdated
from support.harness import Harness
from support.world_harness import WorldHarness

NODES = 20
LARGE = {"notes": "x" * 180_000}
TEMPLATE_BYTES = 190_000
"""More than one message holds that says this annotation."""
NODE_BYTES = 2_000
"""More than a message about one Node holds beside that."""


def bytes_since(harness: WorldHarness, first: int, *kinds: type) -> int:
    """The bytes in the log of events of these classes, from a place in it on."""
    names = tuple(f".{kind.__name__}" for kind in kinds)
    entries = list(harness.entries())[first:]
    return sum(len(entry.content) for entry in entries if entry.subject.endswith(names))


def given_pool(harness: Harness) -> None:
    """A NodePool of many Nodes with a large annotation."""
    harness.given_data_center(machines=NODES + 5)
    harness.apply("train", NODES, nodeAnnotations=LARGE)


def metadata(harness: Harness, node: str) -> dict[str, object]:
    """The annotations of a Node, and its label `team`."""
    shown = harness.node(node)["metadata"]
    return {"annotations": shown["annotations"], "team": shown["labels"].get("team")}


def test_nodes_with_a_large_annotation_are_registered_with_it_in_the_log_once(
    world: WorldHarness,
) -> None:
    given_pool(world)

    said = bytes_since(world, 0, CWNodeRegistered, NodeTemplateChanged)
    assert said < TEMPLATE_BYTES + NODES * NODE_BYTES
    assert metadata(world, "n1") == {"annotations": LARGE, "team": None}
    assert world.replay_differs() == []


def test_a_change_of_a_label_writes_a_large_annotation_once_and_reaches_every_node(
    world: WorldHarness,
) -> None:
    given_pool(world)
    before = len(world.entries())

    world.apply("train", NODES, nodeAnnotations=LARGE, nodeLabels={"team": "red"})

    said = bytes_since(world, before, NodeUpdated, NodeTemplateChanged)
    assert said < TEMPLATE_BYTES + NODES * NODE_BYTES
    names = [f"n{number}" for number in range(1, NODES + 1)]
    assert [metadata(world, name) for name in names] == [
        {"annotations": LARGE, "team": "red"} for _ in names
    ]
    assert world.replay_differs() == []


def test_a_node_that_is_cordoned_says_nothing_of_its_large_annotation(
    world: WorldHarness,
) -> None:
    given_pool(world)
    before = len(world.entries())

    world.run_pod("n1", "job")
    world.scale("train", NODES - 1)

    assert bytes_since(world, before, NodeUpdated, NodeTemplateChanged) < 5 * NODE_BYTES
    assert metadata(world, "n1") == {"annotations": LARGE, "team": None}


def test_metadata_that_is_large_no_longer_leaves_the_nodes(world: WorldHarness) -> None:
    given_pool(world)

    world.apply("train", NODES, nodeAnnotations={"notes": "short"})

    assert metadata(world, "n1") == {"annotations": {"notes": "short"}, "team": None}
    assert world.replay_differs() == []


def test_a_pool_of_the_same_name_has_no_metadata_of_the_one_before(world: WorldHarness) -> None:
    given_pool(world)
    world.delete("train")

    world.apply("train", 1, nodeAnnotations={"notes": "y" * 180_000})

    assert metadata(world, f"n{NODES + 1}") == {
        "annotations": {"notes": "y" * 180_000},
        "team": None,
    }
    assert world.replay_differs() == []


def test_large_taints_and_labels_come_in_the_order_of_small_ones(world: WorldHarness) -> None:
    taints = [{"key": f"team-{number}", "effect": "NoSchedule"} for number in range(3)]
    labels = {"team": "red", "example.com/zone": "own"}
    world.given_data_center(machines=2)

    world.apply("small", 1, nodeTaints=taints, nodeLabels=labels)
    world.apply("large", 1, nodeTaints=taints, nodeLabels=labels, nodeAnnotations=LARGE)

    small, large = world.node("n1"), world.node("n2")
    assert small["spec"] == large["spec"]
    own = ("kubernetes.io/hostname", "compute.coreweave.com/node-pool", "node-pool-uid")
    shared = [
        {key: value for key, value in node["metadata"]["labels"].items() if not key.endswith(own)}
        for node in (small, large)
    ]
    assert shared[0] == shared[1]
