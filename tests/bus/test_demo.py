"""What `nodepool demo` sets up in an empty cell, such as one of new containers."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from nodepool.client import Client
from nodepool.local.demo import ZONE
from testbed.processes import ControlPlane

ROOT = Path(__file__).parents[2]


def test_the_demo_brings_every_example_to_its_target_and_brings_back_nothing_the_second_time(
    tmp_path: Path,
) -> None:
    with ControlPlane(tmp_path, processes=2) as plane:
        # given an empty cell
        url = plane.server.url

        # when the demo is set up
        first = demo(url)

        # then each example has its Nodes
        assert (first.returncode, first.stderr) == (0, "")
        nodes = {"batch": (2, 1), "services": (3, 1), "training": (8, 1)}
        assert asyncio.run(nodes_and_generations(url)) == nodes

        # and set up once more, as by a container that starts again, nothing is changed
        again = demo(url)
        assert (again.returncode, again.stderr) == (0, "")
        assert asyncio.run(nodes_and_generations(url)) == nodes

        # and what was deleted meanwhile is not brought back
        asyncio.run(delete_a_node_pool_and_a_quota(url))
        once_more = demo(url)
        assert (once_more.returncode, once_more.stderr) == (0, "")
        assert "applying 0 NodePools" in once_more.stdout
        assert asyncio.run(nodes_and_generations(url)).keys() == {"services", "training"}
        assert asyncio.run(quotas(url)) == {f"{ZONE}.cd-gp-i64-erapids", f"{ZONE}.gd-8xh100ib-i128"}


def demo(url: str) -> subprocess.CompletedProcess[str]:
    """The command as it is typed."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
        "NODEPOOL_URL": url,
    }
    return subprocess.run(
        [sys.executable, "-m", "nodepool.cli", "demo", "--examples", "deploy/examples"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


async def delete_a_node_pool_and_a_quota(url: str) -> None:
    """Returns once the read model has neither any more."""
    async with Client(url, org="demo", cluster="demo") as client:
        await client.nodepools.delete("batch")
        await client.nodepools.wait_until_gone("batch")
        await client.quotas.delete(ZONE, "gd-8xa100-i128")


async def quotas(url: str) -> set[str]:
    """Of what the organisation has quotas."""
    async with Client(url, org="demo", cluster="demo") as client:
        return {quota.key.removeprefix("demo.") for quota in await client.quotas.list()}


async def nodes_and_generations(url: str) -> dict[str, tuple[object, object]]:
    """How many Nodes each NodePool has, and which generation of it there is."""
    async with Client(url, org="demo", cluster="demo") as client:
        pools = await client.nodepools.list()
    return {pool.key.rpartition(".")[2]: shown(pool.document) for pool in pools}


def shown(document: object) -> tuple[object, object]:
    """The Nodes of a NodePool, from its status, and its generation."""
    assert isinstance(document, dict)
    return document["status"]["currentNodes"], document["metadata"]["generation"]
