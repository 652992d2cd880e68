"""What the validator makes of a target that the autoscaler has for a NodePool."""

from dataclasses import replace

import pytest

from nodepool.contract.events import NodePoolAutoscaled, NodePoolValidated
from support.constants import INJECTED
from unit.test_validator import TRAIN, Story, a_cluster, apply, delete, scale
from validator import objects

WHY = "targetNodes from 3 to 5: 2 Pods wait for 2 Nodes more"
BOUNDS: dict[str, object] = {"autoscaling": True, "minNodes": 2, "maxNodes": 6}


def an_autoscaled_pool() -> Story:
    """A story that begins with the NodePool `train` of 3 Nodes, which may have 2 to 6."""
    story = a_cluster()
    story.hears(apply(3, spec=BOUNDS))
    return story


def autoscaled(story: Story, target: int, generation: int = 0, uid: str = "") -> NodePoolAutoscaled:
    """A target for the NodePool `train` as it is stored, or for another generation or uid."""
    stored = story.train
    return NodePoolAutoscaled(
        org="acme",
        cluster="prod",
        pool="train",
        uid=uid or stored.uid,
        generation=generation or stored.generation,
        target=target,
        message=WHY,
    )


def test_a_target_of_the_autoscaler_makes_a_new_generation_that_says_why() -> None:
    story = an_autoscaled_pool()
    before = story.train

    (after,) = story.hears(autoscaled(story, 5))

    assert isinstance(after, NodePoolValidated)
    assert after == before.model_copy(
        update={
            "generation": 2,
            "version": story.position,
            "spec": before.spec.model_copy(update={"target_nodes": 5}),
            "autoscaled": WHY,
        }
    )
    assert story.train == after


@pytest.mark.parametrize("target", [1, 7, 3])
def test_a_target_out_of_bounds_or_that_is_none_changes_nothing(target: int) -> None:
    story = an_autoscaled_pool()

    assert story.hears(autoscaled(story, target)) == []


def test_a_target_for_an_earlier_generation_or_another_pool_changes_nothing() -> None:
    story = an_autoscaled_pool()
    story.hears(scale(4))

    late = story.hears(autoscaled(story, 5, generation=1))
    strange = story.hears(autoscaled(story, 5, uid="another"))

    assert (late, strange) == ([], [])
    assert story.train.spec.target_nodes == 4


def test_a_target_is_for_one_change_only() -> None:
    story = an_autoscaled_pool()
    event = autoscaled(story, 5)

    story.hears(event)

    assert story.hears(event) == []


def test_a_pool_that_is_not_autoscaled_any_more_keeps_its_target() -> None:
    story = an_autoscaled_pool()
    story.hears(apply(3, spec={**BOUNDS, "autoscaling": False}))

    assert story.hears(autoscaled(story, 5)) == []


def test_a_pool_that_is_being_deleted_keeps_its_target() -> None:
    story = an_autoscaled_pool()
    story.hears(delete())

    assert story.hears(autoscaled(story, 5)) == []


def test_a_command_that_keeps_the_target_keeps_why_it_was_set() -> None:
    story = an_autoscaled_pool()
    story.hears(autoscaled(story, 5))

    story.hears(apply(5, {"labels": {"team": "red"}}, BOUNDS))

    assert story.train.autoscaled == WHY


def test_a_command_that_sets_the_target_is_not_the_autoscalers() -> None:
    story = an_autoscaled_pool()
    story.hears(autoscaled(story, 5))

    story.hears(scale(4))

    assert story.train.autoscaled == ""


def test_a_target_that_could_not_be_stored_is_stored_a_minute_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story, changed = an_autoscaled_pool(), objects.change_pool
    event = autoscaled(story, 5)

    def failing(*_: object) -> None:
        raise RuntimeError(INJECTED)

    monkeypatch.setattr(objects, "change_pool", failing)
    assert story.failure_of(event) is not None
    monkeypatch.setattr(objects, "change_pool", changed)
    story.now = story.due or story.now

    (after,) = story.wake()

    assert isinstance(after, NodePoolValidated)
    assert (after.spec.target_nodes, after.autoscaled) == (5, WHY)
    assert not story.has_work


def test_new_labels_do_not_lose_a_target_that_could_not_be_stored_yet() -> None:
    story = an_autoscaled_pool()
    event = autoscaled(story, 5)
    pool = replace(story.state.pools[TRAIN], autoscaled=event)
    state = replace(story.state, pools=story.state.pools.set(TRAIN, pool))
    story.folded = replace(story.folded, state=state)

    *_, after = story.hears(apply(3, {"labels": {"team": "red"}}, BOUNDS))

    assert isinstance(after, NodePoolValidated)
    assert (after.spec.target_nodes, after.labels) == (5, {"team": "red"})
