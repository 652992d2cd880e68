"""An agent registers its cluster as the Kubernetes that it is, whatever its API server replies."""

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.actions import Place
from agent.host import registration
from agent.host.registration import Registration
from bus.harness import serving, until
from nodepool.cli.app import run
from nodepool.client import Client
from nodepool.host.logs import ServiceLog
from nodepool.host.settings import Settings
from nodepool.local.server import NatsServer
from support.agent.answered import answered
from support.constants import ZONE
from support.services import services

PLACE = Place("acme", "prod", ZONE)
RIGHT = {"kind": "Status", "message": 'cannot get resource "namespaces" in API group ""'}
BUSY = {"kind": "Status", "message": "the server is starting"}
Reply = tuple[int, object]


def document(uid: str) -> Reply:
    """The namespace kube-system with this uid."""
    return 200, {"metadata": {"uid": uid}}


async def registered(client: Client, *replies: Reply) -> Sequence[str]:
    """What it notes until the cluster is registered; the last reply is given again and again."""
    left, notes = list(replies), list[str]()

    def reply(_path: str) -> tuple[int, bytes]:
        code, content = left.pop(0) if len(left) > 1 else left[0]
        return code, json.dumps(content).encode()

    log = ServiceLog("agent", Settings(log_file=os.devnull))
    try:
        async with answered(reply) as api:
            await Registration(api, PLACE, log.logger).run(client, notes.append)
    finally:
        log.close()
    return notes


async def identity(client: Client) -> object:
    """The uid that the read model shows of the cluster; None for none."""
    found = await client.clusters.get("prod")
    spec = found["spec"] if found is not None else None
    return spec.get("kubernetesUid") if isinstance(spec, dict) else None


async def test_a_cluster_is_registered_by_what_its_api_server_says_it_is(
    server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "RETRY_S", 0.05)
    monkeypatch.setattr(registration, "REFUSED_S", 0.05)

    validator, aggregator = services("validator", "aggregator")
    async with (
        serving(validator, server, tmp_path / "1.log"),
        serving(aggregator, server, tmp_path / "2.log"),
        Client(server.url, org="acme", cluster="prod") as client,
    ):
        # when the account may not read it, the API server is not ready, it is another cluster,
        # and the right is taken away again
        first = await registered(client, (403, RIGHT))
        second = await registered(client, (503, BUSY), document("11aa"))
        await until(lambda: is_shown(client, "11aa"))
        third = await registered(client, document("22bb"), document("11aa"))
        fourth = await registered(client, (403, RIGHT), document("11aa"))

    # then it is the first that was known, and what stands in the way is noted each time
    begun, fault = "registering the cluster", "the cluster is not registered: "
    assert first == [begun]
    assert second == [begun, f"{fault}the server is starting"]
    assert third[1].startswith(f"{fault}kubernetesUid: acme/prod is the Kubernetes cluster")
    assert fourth[1].endswith("that may not get that namespace cannot register it (Conflict)")
    assert [len(each) for each in (third, fourth)] == [2, 2]


async def test_an_operator_says_which_kubernetes_a_cluster_is(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def printed(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        line = ["--url", server.url, "register", "cluster", "prod", "--zone", ZONE, "--org", "acme"]
        code = await asyncio.to_thread(run, [*line, *words])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    (validator,) = services("validator")
    async with serving(validator, server, tmp_path / "1.log"):
        first = await printed("--kubernetes-uid", "11aa")
        other = await printed("--kubernetes-uid", "22bb")
        replaced = await printed("--kubernetes-uid", "22bb", "--replaces", "11aa")
        endless = await printed("--kubernetes-uid", "a" * 64)

    assert first == (0, "cluster/prod created\n")
    assert other[0] == 1
    assert other[1].startswith("error: kubernetesUid: acme/prod is the Kubernetes cluster")
    assert replaced == (0, "cluster/prod configured\n")
    assert endless[0] == 1
    assert endless[1].startswith("error: kubernetesUid: ")


async def is_shown(client: Client, uid: str) -> bool:
    """Whether the read model shows which Kubernetes the cluster is."""
    return await identity(client) == uid
