"""How many empty Nodes the Pods that wait would fill: first-fit, those that ask for most first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.needed import nodes_needed
from nodepool.contract.pods import PODS_MAX, Shape

MOST = 10_000
SHAPES = st.dictionaries(
    st.builds(Shape, st.integers(0, 9), st.integers(0, 9), st.sampled_from((1, 1, 7, 55, 110))),
    st.integers(1, 150),
    max_size=8,
)


def placed(waiting: dict[Shape, int], gpus: int) -> list[list[Shape]]:
    """The Pods on each Node, placed one after the other."""
    nodes: list[list[Shape]] = []
    for shape in sorted(waiting, reverse=True):
        for _ in range(waiting[shape]):
            if max(shape.gpus, shape.accelerators) > gpus:
                continue
            node = next((node for node in nodes if fits(node, shape, gpus)), None)
            if node is None:
                nodes.append(node := [])
            node.append(shape)
    return nodes


def fits(node: list[Shape], shape: Shape, gpus: int) -> bool:
    """Whether a Node with these Pods takes another."""
    pods = [*node, shape]
    return (
        sum(pod.slots for pod in pods) <= PODS_MAX
        and sum(pod.gpus for pod in pods) <= gpus
        and sum(pod.accelerators for pod in pods) <= gpus
    )


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        ({}, 0),
        ({Shape(8, 0): 3}, 3),
        ({Shape(1, 0): 8}, 1),
        ({Shape(1, 0): 9}, 2),
        ({Shape(5, 0): 2, Shape(3, 0): 2}, 2),
        ({Shape(8, 0): 2, Shape(0, 8): 2}, 2),
        ({Shape(0, 0): PODS_MAX + 1}, 2),
        ({Shape(0, 0, 55): 3, Shape(0, 0, 37): 2}, 3),
        ({Shape(9, 0): 5}, 0),
    ],
    ids=[
        "none",
        "whole Nodes",
        "one Node is enough",
        "one more than it takes",
        "large and small together",
        "both names of the GPUs beside each other",
        "more than a Node takes Pods",
        "large by their CPU and memory",
        "more GPUs than a Node has",
    ],
)
def test_so_many_nodes_are_needed(waiting: dict[Shape, int], expected: int) -> None:
    assert nodes_needed(waiting, 8, MOST) == expected


@given(SHAPES, st.sampled_from([0, 4, 8]))
def test_it_is_as_many_as_when_each_pod_is_placed_for_itself(
    waiting: dict[Shape, int], gpus: int
) -> None:
    assert nodes_needed(waiting, gpus, MOST) == len(placed(waiting, gpus))


@given(SHAPES, st.integers(0, 20))
def test_it_is_never_more_than_allowed(waiting: dict[Shape, int], most: int) -> None:
    assert nodes_needed(waiting, 8, most) == min(most, nodes_needed(waiting, 8, MOST))


def test_as_many_pods_as_can_wait_cost_next_to_nothing() -> None:
    waiting = {Shape(gpus, other): 10_000 for gpus in range(9) for other in range(9)}

    assert nodes_needed(waiting, 8, 1_000_000) > 0
