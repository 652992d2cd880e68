"""`nodepool get pods` and `describe pod` on a real server: what the log says about Pods."""

import asyncio
import json

import pytest

from bus.cli import Done
from bus.harness import connected
from bus.test_client import CLUSTER, ORG, say
from nodepool.cli.app import run
from nodepool.cli.tables import POOL_LABEL
from nodepool.contract.events import PodChanged
from nodepool.contract.events.fleet import PodPhase
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.wire.connection import Connection


def pod(
    name: str, phase: PodPhase, *, pool: str = "p", node: str = "", number: int = 1
) -> PodChanged:
    """Return a change of a Pod."""
    return PodChanged(
        org=ORG,
        cluster=CLUSTER,
        pool=pool,
        name=name,
        uid="u",
        number=number,
        phase=phase,
        node=node,
        gpus=8,
    )


async def nodepool(server: NatsServer, capsys: pytest.CaptureFixture[str], *words: str) -> Done:
    """Run a command about the cluster of the test."""
    words = ("--url", server.url, "--org", ORG, "--cluster", CLUSTER, *words)
    code = await asyncio.to_thread(run, words)
    printed = capsys.readouterr()
    return Done(code, printed.out, printed.err)


async def fill(connection: Connection) -> None:
    """Store the changes of four Pods, of which two are left, and bytes that are no change."""
    await say(connection, pod("a", "Pending"))
    await say(connection, pod("a", "Running", node="g1"))
    await say(connection, pod("b", "Running", node="g2", pool="q"))
    await say(connection, pod("gone", "Running", node="g1"))
    await say(connection, pod("gone", "Gone", node="g1"))
    await say(connection, pod("again", "Running", number=3))
    await say(connection, pod("again", "Running", number=4, node="g2"))
    await say(connection, pod("again", "Gone", number=3))
    for content in (b"", b"[]", b"[" * 10_000, b'{"data":{"name":1}}'):
        await api.publish(connection, f"np.evt.fleet.{ORG}.{CLUSTER}.p.PodChanged", content)


async def test_pods_are_listed_by_their_newest_change(
    server: NatsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    async with connected(server.url) as connection:
        await fill(connection)

    listed = await nodepool(server, capsys, "get", "pods", "--no-headers")

    assert [line.split()[:5] for line in listed.out.splitlines()] == [
        ["a", "Running", "g1", "p", "8"],
        ["again", "Running", "g2", "p", "8"],
        ["b", "Running", "g2", "q", "8"],
    ]
    assert (listed.code, listed.err) == (0, "")


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("po", "a"), ["a"]),
        (("pods", "-l", f"{POOL_LABEL}=q"), ["b"]),
        (("pods", "--field-selector", "spec.nodeName=g2"), ["again", "b"]),
    ],
    ids=["name", "label", "node"],
)
async def test_pods_are_chosen_by_name_by_nodepool_and_by_node(
    server: NatsServer,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    names: list[str],
) -> None:
    async with connected(server.url) as connection:
        await fill(connection)

    listed = await nodepool(server, capsys, "get", *words, "-o", "name")

    assert listed == (0, "".join(f"pod/{name}\n" for name in names), "")


async def test_a_pod_is_described(server: NatsServer, capsys: pytest.CaptureFixture[str]) -> None:
    async with connected(server.url) as connection:
        await fill(connection)

    described = await nodepool(server, capsys, "describe", "pod", "a")

    assert described.code == 0
    assert [line.split() for line in described.out.splitlines()][:3] == [
        ["Name:", "a"],
        ["Namespace:"],
        ["Labels:", f"{POOL_LABEL}=p"],
    ]
    assert "Node Name:" in described.out
    assert "Phase:  Running" in described.out


async def test_of_a_long_log_the_newest_changes_are_read_and_a_note_says_so(
    server: NatsServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodepool.client.pods.CHANGES_MAX", 6)

    async with connected(server.url) as connection:
        for number in range(20):
            await say(connection, pod(f"p{number:02}", "Running", node="g1"))

    listed = await nodepool(server, capsys, "get", "pods", "-o", "name")

    assert listed.out.split() == [f"pod/p{number}" for number in range(15, 20)]
    assert listed.err.startswith("Pods that have not changed since 20")


async def test_the_pods_of_a_cluster_of_kubernetes_are_left_to_kubectl(
    server: NatsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    async with connected(server.url) as connection:
        document = {"metadata": {"name": CLUSTER}, "spec": {"kubernetes": True}}
        content = json.dumps(document).encode()
        await api.publish(connection, f"$KV.clusters.{ORG}.{CLUSTER}", content)

    listed = await nodepool(server, capsys, "get", "pods")

    assert (listed.code, listed.out) == (1, "")
    assert listed.err == (
        f"error: the Pods of {ORG}/{CLUSTER} are in Kubernetes: use 'kubectl get pods';"
        " 'nodepool describe node NAME' names the Pods that a Node waits for\n"
    )
