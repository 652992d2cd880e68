"""The stages that stories are told on; each story ends with the whole log read once more."""

from collections.abc import Iterator

import pytest

from support.stage import Stage, WorldStage


@pytest.fixture
def world() -> Iterator[WorldStage]:
    """A stage in memory, for stories that need time to pass or somebody to sleep."""
    told = WorldStage()
    yield told
    assert told.replay_differs() == []


@pytest.fixture
def stage(world: WorldStage) -> Stage:
    """A stage for stories that can be told anywhere."""
    return world
