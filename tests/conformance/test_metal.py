"""The provider of real machines keeps to the contract of providers, over a log in memory."""

from dataclasses import replace

import pytest

from conformance.metal import MetalTrial
from conformance.scenarios import STORIES, Story
from nodepool.contract.catalog import ZONES
from support.constants import ZONE


@pytest.fixture(autouse=True)
def zone_of_metal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog in which a zone belongs to `metal`."""
    zones = {**ZONES, ZONE: replace(ZONES[ZONE], provider="metal")}
    monkeypatch.setattr("nodepool.contract.catalog.ZONES", zones)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_real_machines_keep_to_the_contract_of_providers(story: Story) -> None:
    trial = MetalTrial()

    story(trial)

    assert trial.broken == []
    assert trial.owed() == []
    assert trial.world.replay_differs() == []
