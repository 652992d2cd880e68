"""A NodePool from nothing to its Nodes and back: by the agent, and by operators of others."""

import os
import subprocess
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from time import monotonic
from typing import NamedTuple, Protocol

from bench import karpenter
from bench.bed import NAME, Seen, apply, bed, start_services, until
from bench.marks import POOL, Document
from bench.peer import FAIR
from bench.usage import cpu_s
from kube.audit import AuditLog
from testbed.agent import USER, agent_at_work
from testbed.cluster import Cluster
from testbed.components import API_SERVER

ACCOUNT = "peer"
PEER_USER = f"system:serviceaccount:kube-system:{ACCOUNT}"
LOG, TAIL = "peer.log", 20
STOP_S = 10.0
"""How long an operator may take to stop, in seconds, before it is killed."""
QUIET_S = 3.0
"""How long an operator sends nothing when it is done; the agent records some Events after 2 s."""


class Resize(NamedTuple):
    """What it takes to give a NodePool its Nodes, or to take them all back.

    seconds: from the change of the spec until the status shows it.
    cpu_s: the processor time of the operator alone, in seconds, until its last Event is recorded.
    others_s: that of the services and the bus, if the operator has any.
    server_s: that of the API server, which also serves the kubelets and those who look.
    requests: how many the operator sent to the API server until then, but for its Lease.
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
    nodes: Sequence[Document]


class Operator(NamedTuple):
    """An operator at work: its process, the processes beside it, and its name as a user."""

    name: str
    pid: int
    others: Sequence[int]
    user: str


class Job(Protocol):
    """A NodePool that an operator scales.

    selector: the label of its Nodes, as kubectl takes it.
    """

    selector: str

    def scale(self, target: int) -> None:
        """Change how many Nodes are wanted."""

    def is_at(self, target: int) -> bool:
        """Return whether so many Nodes are in use, and there are no others."""


class NodePoolJob:
    """A NodePool object of the agent's."""

    selector = f"{POOL}={NAME}"

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        apply(seen.cluster, NAME, 0)
        until(lambda: seen.current(NAME) == 0)

    def scale(self, target: int) -> None:
        """Change `spec.targetNodes`."""
        self._seen.scale(NAME, target)

    def is_at(self, target: int) -> bool:
        """Return whether its status and the cluster have so many Nodes."""
        return self._seen.current(NAME) == target and self._seen.nodes(NAME) == target


def compare_peers(nodes: int) -> Generator[Measured]:
    """Yield what the job takes, by one operator after another in the same cluster."""
    with bed() as (folder, cluster, account), closing(Seen(cluster)) as seen:
        with (
            start_services(folder, cluster, nodes) as plane,
            agent_at_work(folder, account, plane.url) as agent,
        ):
            pids = list(plane.processes.pids())
            yield _measure(
                cluster, Operator("agent", agent.pid, pids, USER), NodePoolJob(seen), nodes
            )
            cluster.kubectl("delete", "nodepools.compute.coreweave.com", NAME, "--timeout=60s")
        kubeconfig = create_account(cluster)
        permit(cluster, "cluster-admin")
        for name, arguments in (("kopf, plain", ()), ("kopf, fair", (FAIR,))):
            with start_peer(folder, kubeconfig, *arguments) as pid:
                job = NodePoolJob(seen)
                yield _measure(cluster, Operator(name, pid, (), PEER_USER), job, nodes)
        if karpenter.PROGRAM.exists():
            karpenter.declare(cluster)
            environment = karpenter.environment(kubeconfig)
            with (
                _start(folder, [str(karpenter.PROGRAM)], environment) as pid,
                closing(karpenter.StaticPool(cluster)) as pool,
            ):
                yield _measure(cluster, Operator("karpenter", pid, (), PEER_USER), pool, nodes)


def create_account(cluster: Cluster) -> Path:
    """Return the kubeconfig of a new account, which has no rights yet."""
    cluster.kubectl("create", "serviceaccount", ACCOUNT, "-n", "kube-system")
    token = cluster.kubectl("create", "token", ACCOUNT, "-n", "kube-system", "--duration=24h")
    return cluster.connect(ACCOUNT, token.strip())


def permit(cluster: Cluster, role: str) -> None:
    """Give the account a role of the cluster, and wait until the API server heeds that."""
    binding = ("clusterrolebinding", f"{ACCOUNT}-{role}", f"--clusterrole={role}")
    cluster.kubectl("create", *binding, f"--serviceaccount=kube-system:{ACCOUNT}")
    listed = ("auth", "can-i", "list", "nodes", "--as", PEER_USER)
    until(lambda: cluster.run(*listed).returncode == 0)


def start_peer(folder: Path, kubeconfig: Path, *arguments: str) -> AbstractContextManager[int]:
    """Start the peer, which finds its modules where this program finds them."""
    command = [sys.executable, "-m", "bench.peer", str(kubeconfig), *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return _start(folder, command, environment)


@contextmanager
def _start(folder: Path, command: Sequence[str], environment: Mapping[str, str]) -> Iterator[int]:
    """Yield the process id of an operator; it ends with the context.

    An error in the context carries the end of the log of the operator.
    """
    with (folder / LOG).open("ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        yield process.pid
    except BaseException as error:
        ended = f"the operator ended with {process.poll()}; " * (process.poll() is not None)
        error.add_note(f"{ended}its log ends with:\n{_tail(folder / LOG)}")
        raise
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _tail(path: Path) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-TAIL:])


def _measure(cluster: Cluster, operator: Operator, job: Job, nodes: int) -> Measured:
    up = _resize(cluster, operator, job, nodes)
    found = cluster.objects("nodes", selector=job.selector)
    return Measured(operator.name, up, _resize(cluster, operator, job, 0), found)


def _resize(cluster: Cluster, operator: Operator, job: Job, target: int) -> Resize:
    audit, before, began = AuditLog(cluster.folder), _used(cluster, operator), monotonic()
    job.scale(target)
    until(lambda: job.is_at(target))
    seconds = monotonic() - began
    requests = _count_requests(audit, operator.user)
    after = _used(cluster, operator)
    own_s, others_s, server_s = (late - early for early, late in zip(before, after, strict=True))
    return Resize(seconds, own_s, others_s, server_s, requests)


def _count_requests(audit: AuditLog, user: str) -> int:
    """Return how many requests an operator has sent, once it sends no more but for its Lease."""
    counted = [-1]

    def is_quiet() -> bool:
        counts = audit.counts(user)
        counted.append(sum(count for (_, kind), count in counts.items() if kind != "leases"))
        return counted[-1] == counted[-2]

    until(is_quiet, QUIET_S)
    return counted[-1]


def _used(cluster: Cluster, operator: Operator) -> tuple[float, float, float]:
    """Return the processor time of an operator, of the processes beside it, and of the server."""
    server = cluster.parts[API_SERVER].pid
    return cpu_s(operator.pid), sum(map(cpu_s, operator.others)), cpu_s(server)
