"""The provider of real machines keeps to the contract of providers, over a log in memory."""

import pytest

from conformance.metal import MetalTrial
from conformance.scenarios import STORIES, Story
from redfish.program import zones_of_metal


@pytest.fixture(autouse=True)
def zone_of_metal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog in which a zone belongs to `metal`."""
    monkeypatch.setattr("nodepool.contract.catalog.ZONES", zones_of_metal())


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_real_machines_keep_to_the_contract_of_providers(story: Story) -> None:
    trial = MetalTrial()

    story(trial)

    assert trial.broken == []
    assert trial.owed() == []
    assert trial.world.replay_differs() == []
