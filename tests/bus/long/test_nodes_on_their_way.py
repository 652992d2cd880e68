"""Nodes that are drained, rebooted and locked while the server and the services are killed."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from bus.harness import connected, read_all
from nodepool.client import Client
from nodepool.contract.commands import DrainNode, RebootNode
from nodepool.contract.commands_slurm import LockNode
from nodepool.contract.documents import Document, condition, text
from nodepool.contract.model import LOCK
from nodepool.contract.pods import Pod, PodClass
from support.audit.auditor import violations
from support.constants import H100, ZONE
from testbed.processes import ControlPlane

API = "compute.coreweave.com/v1alpha1"
GRACE_S = 3
"""How long the Pods take to end, and a machine to boot: as long as something is on its way."""


def phase(node: Document) -> str:
    """The phase that a Node shows."""
    return text(node, "status", "phase")


def lock(node: Document) -> str:
    """The lock that a Node shows."""
    return text(node, "metadata", "annotations", LOCK)


def is_idle(node: Document) -> bool:
    """Whether no work runs on a Node."""
    return condition(node, "CWActive", "status") == "False"


async def shown(client: Client, node: str, holds: Callable[[Document], bool]) -> None:
    """Returns once a Node is as it should be."""
    async with asyncio.timeout(60), aclosing(client.nodes.follow(node)) as changes:
        async for document in changes:
            if document is not None and holds(document):
                return


async def begun(client: Client) -> list[str]:
    """A Node that is drained, one that reboots, and one with a lock that waits; their names."""
    await client.clusters.register("prod", ZONE)
    await client.quotas.set(ZONE, H100, 3)
    await client.fleet.add_machines(ZONE, H100, 3, boot_seconds=GRACE_S)
    spec = {"instanceType": H100, "targetNodes": 3}
    manifest = {"apiVersion": API, "kind": "NodePool", "metadata": {"name": "p"}, "spec": spec}
    await client.nodepools.apply(manifest)
    await client.nodepools.wait("p", "AtTarget", timeout_s=60)
    drained, rebooted, locked = sorted(each.key for each in await client.nodes.list())
    pod = Pod(name="job", interruption=PodClass.GRACEFUL, grace_s=GRACE_S)
    for node in (drained, locked):
        await client.fleet.run_pod(ZONE, node, pod)
    fields = client.commands.fields_of("p")
    await client.commands.send(DrainNode(**fields, node=drained))
    await client.commands.send(RebootNode(**fields, node=rebooted))
    await client.commands.send(LockNode(**fields, node=locked, job="42"))
    return [drained, rebooted, locked]


@pytest.mark.parametrize("away", [0, 2 * GRACE_S], ids=["before it is over", "when it is over"])
async def test_what_was_asked_for_nodes_is_done_although_everything_is_killed(
    tmp_path: Path, away: int
) -> None:
    with ControlPlane(tmp_path) as plane:
        async with Client(plane.server.url, org="acme", cluster="prod", timeout_s=30) as client:
            # given Nodes on their way
            drained, rebooted, locked = await begun(client)

            # when the server is killed, and is back after a while, and all services are killed
            await asyncio.to_thread(plane.server.kill)
            await asyncio.sleep(away)
            await asyncio.to_thread(plane.server.start)
            for name in plane.names:
                plane.kill(name)

            # then each Node gets where it was to get
            await shown(client, drained, is_idle)
            await shown(client, rebooted, lambda node: text(node, "status", "reboots") == "1")
            await shown(client, rebooted, lambda node: phase(node) == "production")
            await shown(client, locked, lambda node: lock(node) == "locked")
            await shown(client, drained, lambda node: phase(node) == "cordoned")
        async with connected(plane.server.url) as connection:
            assert violations(await read_all(connection)) == []
        assert plane.errors() == ""
