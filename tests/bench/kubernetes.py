"""What the agent of a Kubernetes costs: beside a plain operator, and with a large cluster."""

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

from lightkube import AsyncClient, Client, KubeConfig
from lightkube.models.core_v1 import Container, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Node, Pod
from lightkube.types import PatchType

from bench.peer import POOL, NodePools
from kube.audit import AuditLog
from nodepool.contract.commands import MACHINES_MAX
from testbed.agent import USER, agent_at_work, declare
from testbed.cluster import Cluster, missing, start_cluster
from testbed.kubelets import Kubelets
from testbed.plane import CLUSTER, H100, ORG, Plane, start_plane

NAME = "bench"
PROBE = "probe"
PEER_USER = "system:serviceaccount:kube-system:peer"
PATIENCE_S = 600.0
LOOK_S, SELDOM_S = 0.02, 3.0
TICKS = os.sysconf("SC_CLK_TCK")
MANIFEST = """\
apiVersion: compute.coreweave.com/v1alpha1
kind: NodePool
metadata: {{name: {name}}}
spec: {{instanceType: {type}, targetNodes: {target}}}
"""
IN_FLIGHT_MAX = 32

Check = Callable[[], bool]


class Resize(NamedTuple):
    """What it takes to give a NodePool its Nodes, or to take them all back.

    seconds: from the change of the spec until its status shows it.
    cpu_s: the processor time of the operator alone, in seconds.
    requests: those that it sent to the API server.
    """

    seconds: float
    cpu_s: float
    requests: int


class Peers(NamedTuple):
    """The same job up and down, by the agent and by a plain operator.

    others_s: the processor time of the services and the bus beside the agent, in seconds.
    """

    agent_up: Resize
    agent_down: Resize
    peer_up: Resize
    peer_down: Resize
    others_s: float


class Large(NamedTuple):
    """A large cluster.

    reactions: from a change of a spec until its status shows the verdict on it, in seconds.
    before_mb, after_mb: the agent's memory without Nodes, and with all Nodes and Pods.
    requests: how many were sent in all for each Node, by verb and resource.
    restart_s, restart_cpu_s, restart_requests: from the start of an agent until it has compared
        everything, and what that took.
    unpaged: the lists that asked for no page.
    """

    reactions: Sequence[float]
    before_mb: float
    after_mb: float
    requests: Mapping[tuple[str, str], float]
    restart_s: float
    restart_cpu_s: float
    restart_requests: int
    unpaged: Sequence[str]


class Seen:
    """What an administrator sees and changes of NodePools, without the time that kubectl takes."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._client = Client(config=KubeConfig.from_file(str(cluster.kubeconfig)))

    def scale(self, name: str, target: int) -> None:
        """Changes `spec.targetNodes`."""
        patch = {"spec": {"targetNodes": target}}
        self._client.patch(NodePools, name, patch, patch_type=PatchType.MERGE)

    def current(self, name: str) -> int | None:
        """The Nodes that its status shows; None without a status."""
        found = _document(self._client.get(NodePools, name).status).get("currentNodes")
        return found if isinstance(found, int) else None

    def nodes(self, name: str) -> int:
        """How many Node objects it has."""
        return sum(1 for _ in self._client.list(Node, labels={POOL: name}, chunk_size=500))

    def is_checked(self, name: str) -> bool:
        """Whether its conditions are about its newest spec."""
        pool = self._client.get(NodePools, name)
        generation = pool.metadata.generation if pool.metadata else None
        conditions = _document(pool.status).get("conditions", ())
        found = {each["type"]: each.get("observedGeneration") for each in conditions}
        return all(found.get(name) == generation for name in ("Validated", "Quota", "Capacity"))


def _document(status: object) -> Mapping[str, Any]:
    """The status of an object, which the library has as a mapping; empty where it has none."""
    return cast("Mapping[str, Any]", status or {})


def why_not() -> str:
    """Why nothing can be measured here; empty where it can."""
    return missing()


@contextmanager
def _bed() -> Iterator[tuple[Path, Cluster, Path]]:
    """A cluster to which the agent's part is declared, with the kubeconfig of its account."""
    with (
        tempfile.TemporaryDirectory(prefix="nodepool-bench-") as folder,
        start_cluster() as cluster,
    ):
        yield Path(folder), cluster, declare(cluster)


def peers(nodes: int) -> Peers:
    """A NodePool from nothing to so many Nodes and back, by each of the two."""
    with _bed() as (folder, cluster, account):
        with (
            _plane(folder, cluster, nodes) as plane,
            agent_at_work(folder, account, plane.url) as a,
        ):
            _apply(cluster, NAME, 0)
            seen = Seen(cluster)
            others = _cpu_of_plane(plane)
            agent_up = _resized(seen, a.pid, USER, nodes)
            agent_down = _resized(seen, a.pid, USER, 0)
            others_s = _cpu_of_plane(plane) - others
            cluster.kubectl("delete", "nodepool", NAME, "--timeout=60s")
        with _peer(cluster, folder) as pid:
            _apply(cluster, NAME, 0)
            _until(lambda: seen.current(NAME) == 0)
            peer_up = _resized(seen, pid, PEER_USER, nodes)
            peer_down = _resized(seen, pid, PEER_USER, 0)
    return Peers(agent_up, agent_down, peer_up, peer_down, others_s)


def large(nodes: int, pods: int, changes: int) -> Large:
    """A cluster with so many Nodes and Pods, in which the spec of a small NodePool changes."""
    with _bed() as (folder, cluster, account), _plane(folder, cluster, nodes + 1) as plane:
        audit, seen = AuditLog(cluster.folder), Seen(cluster)
        with agent_at_work(folder, account, plane.url) as agent:
            before_mb = _memory_mb(agent.pid)
            _apply(cluster, NAME, nodes)
            _until(lambda: seen.current(NAME) == nodes)
            asyncio.run(_fill(cluster, pods))
            _until(lambda: agent.metric("nodepool_agent_objects", kind="Pod") >= pods, SELDOM_S)
            requests = audit.counts(USER)
            after_mb = _memory_mb(agent.pid)
            _apply(cluster, PROBE, 0)
            reactions = [_reaction(seen, number) for number in range(changes)]
        lists = [each.uri for each in audit.requests(USER) if each.verb == "list"]
        restart_s, restart_cpu_s, restart_requests = _restart(folder, cluster, account, plane)
    return Large(
        reactions,
        before_mb,
        after_mb,
        {key: count / nodes for key, count in requests.items()},
        restart_s,
        restart_cpu_s,
        restart_requests,
        [uri for uri in lists if "limit=" not in uri],
    )


def _restart(
    folder: Path, cluster: Cluster, account: Path, plane: Plane
) -> tuple[float, float, int]:
    audit, began = AuditLog(cluster.folder), time.monotonic()
    with agent_at_work(folder, account, plane.url, name="again") as agent:
        _until(lambda: agent.metric("nodepool_agent_queue_length") == 0)
        took = time.monotonic() - began
        return took, _cpu_s(agent.pid), sum(audit.counts(USER).values())


@contextmanager
def _plane(folder: Path, cluster: Cluster, machines: int) -> Iterator[Plane]:
    kubelets = cluster.folder / "kubelets.kubeconfig"
    (folder / "plane").mkdir()
    with start_plane(folder / "plane") as plane, Kubelets(plane.url, kubelets, ORG, CLUSTER):
        for first in range(0, machines, MACHINES_MAX):
            plane.stock(H100, min(MACHINES_MAX, machines - first), machines)
        yield plane


@contextmanager
def _peer(cluster: Cluster, folder: Path) -> Iterator[int]:
    """The process id of a plain operator at work."""
    cluster.kubectl("create", "serviceaccount", "peer", "-n", "kube-system")
    role = "--clusterrole=cluster-admin"
    cluster.kubectl(
        "create", "clusterrolebinding", "peer", role, "--serviceaccount=kube-system:peer"
    )
    token = cluster.kubectl(
        "create", "token", "peer", "-n", "kube-system", "--duration=24h"
    ).strip()
    with (folder / "peer.log").open("wb") as log:
        command = [sys.executable, "-m", "bench.peer", str(cluster.connect("peer", token))]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def _resized(seen: Seen, pid: int, user: str, target: int) -> Resize:
    audit, cpu_s, began = AuditLog(seen.cluster.folder), _cpu_s(pid), time.monotonic()
    seen.scale(NAME, target)
    _until(lambda: seen.current(NAME) == target and seen.nodes(NAME) == target)
    seconds = time.monotonic() - began
    return Resize(seconds, _cpu_s(pid) - cpu_s, sum(audit.counts(user).values()))


def _reaction(seen: Seen, number: int) -> float:
    """How long it takes from one change of a spec until the verdicts on it are shown."""
    began = time.monotonic()
    seen.scale(PROBE, (number + 1) % 2)
    _until(lambda: seen.is_checked(PROBE))
    return time.monotonic() - began


def _apply(cluster: Cluster, name: str, target: int) -> None:
    given = MANIFEST.format(name=name, type=H100, target=target)
    cluster.kubectl("apply", "-f", "-", given=given)


async def _fill(cluster: Cluster, pods: int) -> None:
    """Makes so many Pods, bound to the Nodes of the NodePool in turn.

    The controllers of a test cluster make 20 a second at most, which is not what is measured here.
    """
    client = AsyncClient(config=KubeConfig.from_file(str(cluster.kubeconfig)))
    names = [str(node.metadata and node.metadata.name) async for node in _nodes_of(client)]
    at_once = asyncio.Semaphore(IN_FLIGHT_MAX)

    async def make(number: int) -> None:
        container = Container(name="only", image="none")
        spec = PodSpec(containers=[container], nodeName=names[number % len(names)])
        metadata = ObjectMeta(name=f"bench-{number}", namespace="default")
        async with at_once:
            await client.create(Pod(metadata=metadata, spec=spec))

    await asyncio.gather(*map(make, range(pods)))
    await client.close()


def _nodes_of(client: AsyncClient) -> AsyncIterable[Node]:
    return client.list(Node, labels={POOL: NAME}, chunk_size=500)


def _until(holds: Check, look_s: float = LOOK_S) -> None:
    ends, pause = time.monotonic() + PATIENCE_S, threading.Event()
    while not holds():
        if time.monotonic() > ends:
            raise TimeoutError(f"not within {PATIENCE_S:.0f} s")
        pause.wait(look_s)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _cpu_of_plane(plane: Plane) -> float:
    return sum(map(_cpu_s, plane.processes.pids()))


def _memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    kib = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    return kib / 1024
