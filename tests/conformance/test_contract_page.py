"""The page of the contract names every message, rule and duty of it."""

from pathlib import Path

import pytest

from nodepool.contract.messages import members
from nodepool.contract.providers import (
    PROVIDER_DUTIES,
    PROVIDER_RULES,
    ProviderHears,
    ProviderSays,
    SimulationHears,
    SimulationSays,
)

PAGE = Path(__file__).parents[2] / "shared" / "PROVIDERS.md"
UNIONS = (ProviderHears, ProviderSays, SimulationHears, SimulationSays)


@pytest.mark.parametrize(
    "name",
    [
        *(kind.__name__ for union in UNIONS for kind in members(union)),
        *PROVIDER_RULES,
        *PROVIDER_DUTIES,
    ],
)
def test_the_page_names_each_part_of_the_contract(name: str) -> None:
    assert f"`{name}`" in PAGE.read_text(encoding="utf-8")
