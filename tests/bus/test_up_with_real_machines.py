"""`nodepool up` with two more programs: the service for real machines, and the archiver."""

import asyncio
import json
from pathlib import Path

import pytest

from bus.archives import archived_to
from bus.cli import commands, running
from bus.harness import until
from nodepool.cli.app import run

INVENTORY = Path(__file__).parents[2] / "deploy" / "metal" / "inventory.yaml"


def test_up_shows_the_machines_of_an_inventory_and_archives_the_log_if_it_is_told_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "archive"
    options = ("--inventory", str(INVENTORY), "--archive", str(archive))
    # given an inventory, whose credentials are not there, and a place for an archive
    with running(tmp_path / "data", *options) as up:
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

        # and the log gets into the archive
        asyncio.run(archived_to(archive, 1))
        assert "metrics of archiver are on" in "\n".join(up.printed)

    # and it is whole when all has stopped
    assert run(["log", "verify", "--archive", str(archive)]) == 0
