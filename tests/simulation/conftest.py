"""What holds for every simulation of a fault that is put in on purpose."""

from collections.abc import Iterator

import pytest

from nodepool.contract.decode import decode_once
from support.services import services
from support.simulation.driver import Simulation
from support.simulation.faults import FOUND


@pytest.fixture(autouse=True)
def _repeated_without_the_fault(request: pytest.FixtureRequest) -> Iterator[None]:
    """Repeat what found a fault without the fault: a rule that breaks all the same finds nothing.

    The fixture is the first of its test, so whatever the test has put in is taken out before.
    """
    FOUND.clear()
    decode_once.cache_clear()
    yield
    decode_once.cache_clear()  # It may hold what the fault has read.
    if not request.config.getoption("--short"):
        for seed, profile in FOUND:
            Simulation(seed, services(), profile).run()
