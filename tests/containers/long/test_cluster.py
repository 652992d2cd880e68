"""Three servers in containers, each of which may be killed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from containers.stack import Stack, kill, only_root, until

pytestmark = pytest.mark.timeout(900)
SERVERS = ("nats", "nats-2", "nats-3")


@pytest.fixture(scope="module")
def cluster(stack: Stack, checkout: Path) -> Iterator[Stack]:
    """The compose file with the environment of a cluster."""
    cluster = Stack(f"{stack.project}-cluster", checkout, ["--env-file", "deploy/cluster.env"])
    cluster.down()
    try:
        # Built again, the image would have the name of this project in a label, and be another one.
        cluster.up("--no-build")
        yield cluster
    finally:
        cluster.down()


def test_three_servers_hold_the_log(cluster: Stack) -> None:
    assert {name: cluster.names().get(name) for name in SERVERS} == dict.fromkeys(SERVERS, 1)
    pools = {name: pool["status"]["currentNodes"] for name, pool in cluster.pools().items()}
    assert pools == {"batch": 2, "services": 3, "training": 8}


@only_root
@pytest.mark.parametrize("name", SERVERS)
def test_one_of_three_servers_may_be_killed_and_work_goes_on(cluster: Stack, name: str) -> None:
    # given a cluster at work
    (before,) = cluster.containers(name)

    # when one of its servers is killed, and a NodePool is scaled from where all three are known
    kill(before)
    scale = ("nodepool", "scale", "nodepool", "training", "--target", "12")

    def scaled() -> bool:
        run = ("run", "--rm", "--no-deps", "-T", "demo")
        return cluster.run(*run, *scale, check=False).returncode == 0

    # Where it led, the other two choose a leader first, for some seconds.
    until(scaled, "a NodePool that can be scaled")

    # then it gets its Nodes, and the server comes back
    cluster.wait_until_at_work()
    assert cluster.pools()["training"]["status"]["currentNodes"] == 12
    until(
        lambda: cluster.containers(name)[0]["RestartCount"] > before["RestartCount"],
        f"{name} started again",
    )
    cluster.cli("scale", "nodepool", "training", "--target", "8")
    cluster.wait_until_at_work()
