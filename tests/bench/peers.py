"""A NodePool from nothing to its Nodes and back: by the agent, and by operators of others."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from bench.bed import NAME, Check, Seen, apply, bed, cpu_s, start_services, until
from bench.marks import POOL
from bench.peer import FAIR
from kube.audit import AuditLog
from testbed.agent import USER, agent_at_work
from testbed.cluster import Cluster
from testbed.components import API_SERVER

ACCOUNT = "peer"
PEER_USER = f"system:serviceaccount:kube-system:{ACCOUNT}"

Scale = Callable[[], None]


class Resize(NamedTuple):
    """What it takes to give a NodePool its Nodes, or to take them all back.

    seconds: from the change of the spec until the status shows it.
    cpu_s: the processor time of the operator alone, in seconds.
    others_s: that of the services and the bus, if the operator has any.
    server_s: that of the API server, which also serves the kubelets and those who look.
    requests: how many the operator sent to the API server.
    """

    seconds: float
    cpu_s: float
    others_s: float
    server_s: float
    requests: int


class Measured(NamedTuple):
    """The same job up and down by one operator.

    nodes: the Nodes when all were there.
    """

    name: str
    up: Resize
    down: Resize
    nodes: Sequence[Mapping[str, Any]]


class Operator(NamedTuple):
    """An operator at work: its process, the processes beside it, and its name as a user."""

    name: str
    pid: int
    others: Sequence[int]
    user: str


def compare_peers(nodes: int) -> Iterator[Measured]:
    """Yield what the job takes, by one operator after another in the same cluster."""
    with bed() as (folder, cluster, account), closing(Seen(cluster)) as seen:
        with (
            start_services(folder, cluster, nodes) as plane,
            agent_at_work(folder, account, plane.url) as agent,
        ):
            pids = list(plane.processes.pids())
            yield _measure(seen, Operator("agent", agent.pid, pids, USER), nodes)
            cluster.kubectl("delete", "nodepools.compute.coreweave.com", NAME, "--timeout=60s")
        token = _create_account(cluster)
        for name, arguments in (("kopf, plain", ()), ("kopf, fair", (FAIR,))):
            with _start_peer(folder, cluster.connect(ACCOUNT, token), arguments) as pid:
                yield _measure(seen, Operator(name, pid, (), PEER_USER), nodes)


def _create_account(cluster: Cluster) -> str:
    """Return the token of an account that may do everything."""
    cluster.kubectl("create", "serviceaccount", ACCOUNT, "-n", "kube-system")
    binding = ("clusterrolebinding", ACCOUNT, "--clusterrole=cluster-admin")
    cluster.kubectl("create", *binding, f"--serviceaccount=kube-system:{ACCOUNT}")
    token = cluster.kubectl("create", "token", ACCOUNT, "-n", "kube-system", "--duration=24h")
    return token.strip()


@contextmanager
def _start_peer(folder: Path, kubeconfig: Path, arguments: Sequence[str]) -> Iterator[int]:
    """Yield the process id of an operator that was made with kopf."""
    with (folder / "peer.log").open("ab") as log:
        command = [sys.executable, "-m", "bench.peer", str(kubeconfig), *arguments]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def _measure(seen: Seen, operator: Operator, nodes: int) -> Measured:
    apply(seen.cluster, NAME, 0)
    until(lambda: seen.current(NAME) == 0)
    up = _resize(seen, operator, nodes)
    found = seen.cluster.objects("nodes", selector=f"{POOL}={NAME}")
    return Measured(operator.name, up, _resize(seen, operator, 0), found)


def _resize(seen: Seen, operator: Operator, target: int) -> Resize:
    def scale() -> None:
        seen.scale(NAME, target)

    def is_done() -> bool:
        return seen.current(NAME) == target and seen.nodes(NAME) == target

    return resize(seen.cluster, operator, scale, is_done)


def resize(cluster: Cluster, operator: Operator, scale: Scale, is_done: Check) -> Resize:
    """Return what it takes from `scale()` until `is_done()`."""
    audit, before, began = AuditLog(cluster.folder), _used(cluster, operator), monotonic()
    scale()
    until(is_done)
    seconds, after = monotonic() - began, _used(cluster, operator)
    own_s, others_s, server_s = (late - early for early, late in zip(before, after, strict=True))
    requests = sum(audit.counts(operator.user).values())
    return Resize(seconds, own_s, others_s, server_s, requests)


def _used(cluster: Cluster, operator: Operator) -> tuple[float, float, float]:
    """Return the processor time of an operator, of the processes beside it, and of the server."""
    server = cluster.parts[API_SERVER].pid
    return cpu_s(operator.pid), sum(map(cpu_s, operator.others)), cpu_s(server)
