"""The agent of the test cluster, as real processes beside a real control plane."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nodepool.contract.model import FINALIZER
from nodepool.local.guard import Guard
from nodepool.local.ports import HOST
from testbed.cluster import WITHIN_S, Cluster, wait_until
from testbed.pages import fetch, page
from testbed.plane import CLUSTER, ORG, ZONE
from testbed.ports import free_port

ROOT = Path(__file__).parents[3]
DECLARED = ROOT / "deploy" / "kubernetes" / "agent"
"""What is declared to a cluster before an agent can work in it."""
NAMESPACE = "kube-system"
ACCOUNT = "nodepool-agent"
USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
"""As whom the API server knows the agent."""
BINDING = "nodepool-agent-of-tests"
TRIED = """\
apiVersion: compute.coreweave.com/v1alpha1
kind: NodePool
metadata: {name: tried}
spec: {instanceType: gd-8xh100ib-i128, targetNodes: 0}
"""
END_S = 20.0


class Agent:
    """One replica of the agent as a process; use it in `with`.

    folder: where its log lies.
    kubeconfig: how it reaches the API server, and as whom.
    url: how it reaches the bus.
    lease: the name of its Lease; replicas with the same one take turns.
    """

    def __init__(
        self,
        folder: Path,
        kubeconfig: Path,
        url: str,
        *,
        lease: str = ACCOUNT,
        name: str = "agent",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.port = free_port()
        self.log = folder / f"{name}.log"
        self._errors = folder / f"{name}.err"
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None
        self._environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(sys.path),
            "KUBECONFIG": str(kubeconfig),
            "NODEPOOL_URL": url,
            "NODEPOOL_ORG": ORG,
            "NODEPOOL_CLUSTER": CLUSTER,
            "NODEPOOL_ZONE": ZONE,
            "NODEPOOL_LEASE_NAME": lease,
            "NODEPOOL_METRICS_PORT": str(self.port),
            "NODEPOOL_LOG_FILE": str(self.log),
            **(settings or {}),
        }

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._process is not None, "it was started"
        return self._process.pid

    def start(self) -> None:
        """Start the agent, and return before it is ready."""
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "agent"],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stderr=errors,
                # Ctrl-C at the terminal is for this process, which then stops it itself.
                start_new_session=True,
            )
        self._guard = Guard(self._process.pid)

    def stop(self) -> int:
        """End the agent with SIGTERM, and return its exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the agent with SIGKILL."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> int:
        process = self._process
        if process is None:
            return 0
        process.send_signal(how)
        try:
            code = process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if self._guard is not None:
            self._guard.dismiss()
        self._process = self._guard = None
        return code

    def is_running(self) -> bool:
        """Return whether the process has not ended."""
        return self._process is not None and self._process.poll() is None

    def errors(self) -> str:
        """Return the standard error of the agent, which is empty unless the agent has crashed."""
        return self._errors.read_text() if self._errors.exists() else ""

    def obstacle(self) -> str:
        """Return why it is not ready; empty where it is."""
        try:
            status, text = fetch(f"http://{HOST}:{self.port}/readyz")
        except OSError as error:
            return f"no page: {error}"
        return "" if status == 200 else text.strip()

    def wait_until_ready(self) -> None:
        """Wait until the agent is ready; raise TimeoutError with the reason if it is not."""
        try:
            wait_until("the agent is ready", lambda: not self.obstacle(), WITHIN_S)
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {self.obstacle()}\n{self.errors()}") from None

    def page(self) -> str:
        """Return the page of metrics that the agent shows to Prometheus."""
        return page(f"http://{HOST}:{self.port}/metrics")

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of the series of a metric with these labels; 0 if there are no series."""
        lines = self.page().splitlines()
        values = [
            float(line.rpartition(" ")[2])
            for line in lines
            if re.match(rf"{name}[{{ ]", line)
            and all(f'{label}="{value}"' in line for label, value in labels.items())
        ]
        return sum(values)

    def leads(self) -> bool:
        """Return whether it holds the Lease and acts; raises OSError where it does not respond."""
        return self.is_running() and self.metric("nodepool_leading") == 1

    def is_leading(self) -> bool:
        """Return whether it responds, and leads."""
        with suppress(OSError):
            return self.leads()
        return False

    def lines(self, event: str = "") -> Sequence[Mapping[str, Any]]:
        """Return the lines of the agent's log, or only the lines of one event."""
        text = self.log.read_text() if self.log.exists() else ""
        lines = (json.loads(line) for line in text.splitlines() if line.endswith("}"))
        return [line for line in lines if event in ("", line["event"])]


def declare(cluster: Cluster) -> Path:
    """Apply the objects that an agent needs to a cluster; return the path of its kubeconfig."""
    whole = (DECLARED / "kustomization.yaml").exists()
    if whole:
        cluster.kubectl("apply", "--server-side", "-k", str(DECLARED))
    else:
        cluster.kubectl("apply", "--server-side", "-f", str(DECLARED / "crd.yaml"))
        cluster.run("create", "serviceaccount", ACCOUNT, "-n", NAMESPACE)
    # A Deployment of it would only be Pods that kwok plays.
    cluster.run("scale", "deployment", ACCOUNT, "-n", NAMESPACE, "--replicas=0")
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    # The part of the API server that runs mutating policies learns of a kind some time later.
    wait_until("NodePools can be created", lambda: is_served(cluster), WITHIN_S)
    if not whole:
        bind(cluster)
    token = cluster.kubectl("create", "token", ACCOUNT, "-n", NAMESPACE, "--duration=24h").strip()
    return cluster.connect(ACCOUNT, token)


def is_served(cluster: Cluster) -> bool:
    """Return whether a NodePool could be created, and would have what the mutating policy adds."""
    try_it = ("create", "--dry-run=server", "-o", "jsonpath={.metadata.finalizers}", "-f", "-")
    return FINALIZER in cluster.run(*try_it, given=TRIED).stdout


def bind(cluster: Cluster) -> None:
    """Let the agent do everything in a cluster whose roles are not declared yet."""
    account = f"--serviceaccount={NAMESPACE}:{ACCOUNT}"
    cluster.run("create", "clusterrolebinding", BINDING, "--clusterrole=cluster-admin", account)


@contextmanager
def agent_at_work(
    folder: Path,
    kubeconfig: Path,
    url: str,
    *,
    lease: str = ACCOUNT,
    name: str = "agent",
    settings: Mapping[str, str] | None = None,
) -> Iterator[Agent]:
    """Yield an agent that is ready and leads; end it with the context, and assert no errors."""
    with Agent(folder, kubeconfig, url, lease=lease, name=name, settings=settings) as agent:
        agent.wait_until_ready()
        wait_until("the agent leads", agent.is_leading, WITHIN_S)
        agent.wait_until_ready()
        yield agent
    assert agent.errors() == ""
