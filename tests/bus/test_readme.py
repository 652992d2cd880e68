"""The lines that a page gives to type, typed as they are."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nodepool.client import Client
from support.processes import ControlPlane

ROOT = Path(__file__).parents[2]
SHELL = 'nodepool() { "$PYTHON" -m nodepool.cli "$@"; }\n'


def lines_of(page: str, heading: str) -> str:
    """The lines in the first console block below a heading."""
    _, _, section = (ROOT / page).read_text(encoding="utf-8").partition(f"\n## {heading}\n")
    block = re.search(r"^```console\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert block is not None, f"{page} has no lines to type below {heading}"
    return block[1]


@pytest.mark.timeout(180)
def test_the_lines_that_fill_the_containers_bring_every_example_to_its_target(
    tmp_path: Path,
) -> None:
    with ControlPlane(tmp_path) as plane:
        # given an empty cell, as it is in new containers
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "NODEPOOL_URL": plane.server.url,
        }

        # when the lines are typed
        done = subprocess.run(
            ["bash", "-euc", SHELL + lines_of("shared/README.md", "Containers")],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

        # then all of them succeed, and each example has its Nodes
        assert (done.returncode, done.stderr) == (0, "")
        assert asyncio.run(nodes_by_pool(plane.server.url)) == {
            "batch": 2,
            "services": 3,
            "training": 8,
        }


async def nodes_by_pool(url: str) -> dict[str, object]:
    """How many Nodes each NodePool has."""
    async with Client(url, org="demo", cluster="demo") as client:
        pools = await client.list("nodepools")
    return {pool.key.rpartition(".")[2]: counted(pool.document) for pool in pools}


def counted(document: object) -> object:
    """The Nodes of a NodePool, from its status."""
    assert isinstance(document, dict)
    return document["status"]["currentNodes"]
