"""The emulator of the tests of a process, and the controllers that they open."""

import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from metal.host.redfish.controllers import Controllers
from metal.host.redfish.limits import Limits
from redfish.emulator import Emulator, emulator
from redfish.front import ENVIRONMENT, SECRETS
from support.disks import small_disk

UNPAUSED = Limits(pause_least_s=0, pause_most_s=0)
"""A controller that has failed is asked again at once."""


@pytest.fixture(scope="session")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """An emulator with machines that no other test touches."""
    with emulator(tmp_path_factory.mktemp("emulator")) as running:
        yield running


@pytest.fixture
async def controllers() -> AsyncIterator[Controllers]:
    """The way to all controllers, without pauses after failures."""
    async with Controllers(UNPAUSED, ENVIRONMENT) as opened:
        yield opened


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a small disk of its own."""
    with small_disk(tmp_path / "disk") as folder:
        yield folder


@pytest.fixture(autouse=True)
def no_log_names_a_credential(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever a test does, nothing that is logged holds a credential, at any level."""
    caplog.set_level(logging.DEBUG)
    yield
    logged = "\n".join(str(vars(record)) + record.getMessage() for record in caplog.records)
    assert [secret for secret in SECRETS if secret in logged] == []
