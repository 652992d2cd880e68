"""The bus goes back to an older backup beneath an agent at work."""

import json
from contextlib import suppress
from pathlib import Path

from kube.node_pools import a_pool, apply, is_validated, takes_up
from nodepool.cli.app import run
from nodepool.client import Client
from nodepool.client.errors import Unreachable
from testbed.agent import ACCOUNT, NAMESPACE, agent_at_work
from testbed.cluster import WITHIN_S, Cluster, wait_until
from testbed.plane import H100, ZONE, Plane, start_plane

COMMANDS = 150
"""So many that the log which is lost is longer than what comes right after the backup."""


async def fill(client: Client) -> None:
    """Makes the log longer."""
    for limit in range(COMMANDS):
        await client.quotas.set(ZONE, H100, limit)


def reasons(cluster: Cluster, name: str) -> list[str]:
    """The reasons of the Events of a NodePool."""
    selector = f"involvedObject.name={name}"
    found = cluster.kubectl("get", "events", "--field-selector", selector, "-o", "json")
    return [item["reason"] for item in json.loads(found)["items"]]


def recorded_to(cluster: Cluster) -> int:
    """Up to which position of the log the Lease says that events are recorded."""
    lease = json.loads(cluster.kubectl("get", "lease", ACCOUNT, "-n", NAMESPACE, "-o", "json"))
    noted = lease["metadata"].get("annotations", {}).get("compute.coreweave.com/events", "::")
    return int(noted.split(":")[1] or 0)


def target(plane: Plane, name: str) -> object:
    """The target of a NodePool on the bus; None also while there is no read model."""
    with suppress(Unreachable):
        return plane.target(name)
    return None


def test_an_agent_goes_on_with_a_bus_that_was_restored_from_an_older_backup(
    cluster: Cluster, account: Path, tmp_path: Path
) -> None:
    backup = str(tmp_path / "backup")
    with (
        start_plane(tmp_path) as plane,
        agent_at_work(tmp_path, account, plane.url) as agent,
        a_pool(cluster, "restored-kept"),
    ):
        # given a backup, and a log that has grown since, of which all events are recorded
        assert run(["--url", plane.url, "backup", backup]) == 0
        plane.do(fill)
        apply(cluster, "restored-since")
        wait_until("it is validated", lambda: is_validated(cluster, "restored-since"), WITHIN_S)
        wait_until("the Lease says so", lambda: recorded_to(cluster) > COMMANDS, WITHIN_S)
        lost = recorded_to(cluster)

        # when the bus goes back to that backup
        with plane.processes.pause_services():
            assert run(["--url", plane.url, "restore", "--force", backup]) == 0

        # then both sides have all NodePools again, changes come from one to the other
        wait_until("it is back", lambda: target(plane, "restored-since") == 0, WITHIN_S)
        takes_up(cluster, plane, "restored-kept", 2)
        agent.wait_until_ready()

        # and the events of new ones are recorded, which lie where others were
        with a_pool(cluster, "restored-new"):
            wait_until(
                "its Event is recorded",
                lambda: "CWNodePoolCreated" in reasons(cluster, "restored-new"),
                WITHIN_S,
            )
            wait_until("the Lease says so", lambda: 0 < recorded_to(cluster) < lost, WITHIN_S)
        cluster.kubectl("delete", "nodepool", "restored-since", "--timeout=60s")
