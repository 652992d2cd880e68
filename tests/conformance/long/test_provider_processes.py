"""Every provider of machines keeps to its contract: its process, on a real server."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from conformance.fleet import SILENT_S, FleetMachines
from conformance.metal_process import metal_machines
from conformance.process import ProcessTrial
from conformance.scenarios import STORIES, Story
from conformance.trial import Machines
from nodepool.contract import services
from nodepool.local.binary import find_server
from nodepool.local.server import NatsServer
from testbed.ports import free_port


class Program(NamedTuple):
    """The process of a provider: its machines, variables of its environment, and what to run."""

    machines: Machines
    settings: Mapping[str, str]
    module: str


@contextmanager
def fleet(_server: NatsServer, _folder: Path) -> Iterator[Program]:
    """The fleet, which needs nothing else."""
    yield Program(FleetMachines(), {"NODEPOOL_SILENT_SECONDS": f"{SILENT_S:.0f}"}, "fleet")


@contextmanager
def metal(server: NatsServer, folder: Path) -> Iterator[Program]:
    """The provider of real machines, in a hurry, with an emulator and its controllers."""
    with metal_machines(server, folder) as machines:
        settings = machines.site.settings(hurry=True)
        named = {f"NODEPOOL_{name.upper()}": value for name, value in settings.items()}
        yield Program(machines, named, "redfish.program metal --hurry --short-boots")


PROVIDERS: Mapping[str, Callable[[NatsServer, Path], AbstractContextManager[Program]]] = {
    "fleet": fleet,
    "metal": metal,
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    """A server of its own for each story."""
    binary = find_server(os.environ.get("NODEPOOL_NATS_SERVER"))
    with NatsServer(tmp_path / "nats", free_port(), binary) as running:
        yield running


def test_every_provider_is_on_trial() -> None:
    assert tuple(PROVIDERS) == services.PROVIDERS


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
@pytest.mark.parametrize("name", PROVIDERS)
def test_the_process_of_a_provider_keeps_to_its_contract(
    name: str, story: Story, server: NatsServer, tmp_path: Path
) -> None:
    with PROVIDERS[name](server, tmp_path) as (machines, settings, module):
        trial = ProcessTrial(name, machines, server, tmp_path, settings, module)
        try:
            story(trial)
            trial.settle()
            owed = trial.owed()
        finally:
            trial.close()

    assert trial.broken == []
    assert owed == []
