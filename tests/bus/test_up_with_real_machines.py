"""`nodepool up --inventory`: the service for real machines beside the simulated data centre."""

import asyncio
import json
from pathlib import Path

import pytest

from bus.cli import commands, running
from bus.harness import until

INVENTORY = Path(__file__).parents[2] / "deploy" / "metal" / "inventory.yaml"


def test_up_shows_the_machines_of_an_inventory_and_why_their_controllers_are_silent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given an inventory, whose credentials are not there
    with running(tmp_path / "data", "--inventory", str(INVENTORY)) as up:
        nodepool = commands(up.port, capsys)

        # when operators look at its machines
        def shown() -> dict[str, dict[str, object]]:
            # Before the read model can be asked, the verb prints an error and no list.
            listed = json.loads(nodepool("machine", "list", "-o", "json").out or '{"items": []}')
            return {
                each["metadata"]["name"]: each["status"]
                for each in listed["items"]
                if each["spec"]["zone"] == "LAB-01A"
            }

        # then each is declared, is not in production yet, and says what its controller lacks
        async def are_silent() -> bool:
            machines = await asyncio.to_thread(shown)
            found = {name: (each["state"], each.get("fault")) for name, each in machines.items()}
            said = str(machines.get("r1-m1", {}).get("conditions"))
            return found == silent and "no credential" in said

        silent = dict.fromkeys(("r1-m1", "r1-m2"), ("Onboard", "ControllerSilent"))
        asyncio.run(until(are_silent))
