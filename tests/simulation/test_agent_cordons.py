"""Cordons and uncordons by hand, by command, and by both at once, whatever is slow or restarts."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Final, Literal, get_args

import pytest

from support.agent_world import AgentWorld

Step = Literal["hand", "agent", "bus", "restart", "cordon", "uncordon"]
"""A person cordons or uncordons, whichever it is not; the agent compares; the services go on; the
agent is another process; a command is sent to the bus."""
PATH: Final = ("acme", "prod", "train")

WISHES: Final[tuple[Step, ...]] = ("hand", "cordon", "uncordon")
BY_HAND: Final[tuple[Step, ...]] = ("hand", "agent", "bus", "restart")
SEEN: Final[Mapping[Step, tuple[Step, ...]]] = {
    "hand": ("hand", "agent"),
    "cordon": ("cordon", "bus"),
    "uncordon": ("uncordon", "bus"),
}
LENGTH: Final = 3
"""The steps of each story behind those that it begins with."""


@pytest.fixture
def node() -> tuple[AgentWorld, str]:
    """A Node in production, for one story after the other."""
    world = AgentWorld()
    world.given_data_center(machines=1)
    world.apply("train", 1)
    world.settle()
    world.pass_time(minutes=5)
    world.settle()
    (name,) = world.cluster.nodes
    return world, name


def stories(first: Sequence[Step], steps: Sequence[Step]) -> Iterator[tuple[Step, ...]]:
    """All stories that begin so, and in which a person wishes something last."""
    for rest in product(steps, repeat=LENGTH):
        story = (*first, *rest)
        if [None, *(step for step in story if step in WISHES)][-1] == "hand":
            yield story


def told(world: AgentWorld, story: Sequence[Step], name: str) -> tuple[bool, bool, set[str]]:
    """What a person has wished last, what is, and which refusals were told, once all is done."""
    world.cluster.recorded.clear()
    wish = is_cordoned(world, name)
    with world.services_away():
        for step in story:
            match step:
                case "hand":
                    wish = not is_cordoned(world, name)
                    world.cluster.nodes[name]["spec"]["unschedulable"] = wish
                    world.cluster.touch(name)
                case "agent":
                    world.compare(name)
                case "bus":
                    world.run_until_idle()
                case "restart":
                    world.forget()
                case "cordon" | "uncordon":
                    world.send(f"{step.capitalize()}Node", PATH, {"node": name})
    world.settle()
    events = {event.reason for event in world.cluster.recorded.values()}
    return wish, is_cordoned(world, name), events


def is_cordoned(world: AgentWorld, name: str) -> bool:
    """Whether the object of a Node is cordoned."""
    found = world.cluster.node(name)
    assert found is not None
    return found.unschedulable


def is_cordoned_on_bus(world: AgentWorld, name: str) -> bool:
    """Whether the Node is cordoned in the read model."""
    document = world.document("nodes", f"acme/prod/{name}")
    assert document is not None
    spec = document["spec"]
    assert isinstance(spec, dict)
    return bool(spec.get("unschedulable"))


@pytest.mark.parametrize("second", BY_HAND)
@pytest.mark.parametrize("third", BY_HAND)
def test_the_last_wish_by_hand_wins_whatever_is_slow_or_restarts(
    node: tuple[AgentWorld, str], second: Step, third: Step
) -> None:
    world, name = node

    for story in stories(("hand", second, third), BY_HAND):
        wish, found, events = told(world, story, name)

        assert (found, is_cordoned_on_bus(world, name), events) == (wish, wish, set()), story


@pytest.mark.parametrize("first", get_args(Step))
@pytest.mark.parametrize("second", ["agent", "bus"])
def test_beside_commands_the_last_wish_by_hand_wins_or_is_told(
    node: tuple[AgentWorld, str], first: Step, second: Step
) -> None:
    world, name = node

    for unseen in stories((first, second), get_args(Step)):
        # What a person takes back before the agent has seen it was no wish.
        story = [each for step in unseen for each in SEEN.get(step, (step,))]
        wish, found, events = told(world, story, name)

        verb = "Cordon" if wish else "Uncordon"
        assert found == is_cordoned_on_bus(world, name), story
        assert found == wish or f"{verb}Refused" in events, story
