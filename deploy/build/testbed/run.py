"""A Kubernetes and the control plane together on this machine, with two replicas of the agent.

`python -m testbed.run` runs until SIGINT or SIGTERM. All ports are free ones and the data is in a
new folder, so that more than one can run at a time.
"""

import os
import signal
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

from nodepool.client import ClientError
from nodepool.local.console import report
from nodepool.local.demo import seed_demo
from nodepool.local.errors import ServerError
from testbed.agent import Agent, declare
from testbed.cluster import Cluster, KubectlError, missing
from testbed.kubelets import Kubelets
from testbed.plane import ORG, Plane
from testbed.processes import ControlPlane

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "deploy" / "examples"
CLUSTER = "demo"
REPLICAS = 2
TARGET_S = 120
"""How long the example NodePools may take to reach their targets, in seconds."""


def main() -> int:
    """Run until SIGINT or SIGTERM, and return the exit code."""
    reason = missing()
    if reason:
        report(f"run-kubernetes: {reason}")
        return 1
    stop = threading.Event()

    def request_stop(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, request_stop)
    try:
        with ExitStack() as stack:
            _start(stack, stop)
            stop.wait()
            report("\nstopping; nothing is kept")
    except (ServerError, ClientError, KubectlError, TimeoutError, OSError) as error:
        report(f"run-kubernetes: {error}")
        return 1
    return 0


def _start(stack: ExitStack, stop: threading.Event) -> None:
    """Start one part after another, until all parts run or `stop` is set."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nodepool-run-")))
    report("starting Kubernetes: etcd, API server, controller manager, scheduler, kwok")
    cluster = stack.enter_context(Cluster(folder / "kubernetes"))
    if stop.is_set():
        return
    report("starting the control plane: NATS and every service")
    (folder / "control-plane").mkdir()
    plane = Plane(stack.enter_context(ControlPlane(folder / "control-plane")), CLUSTER)
    plane.do(seed_demo)
    if stop.is_set():
        return
    report("kubectl apply -k deploy/kubernetes/agent, and two replicas of the agent")
    connection = declare(cluster)
    kubelets = folder / "kubernetes" / "kubelets.kubeconfig"
    stack.enter_context(Kubelets(plane.url, kubelets, ORG, CLUSTER))
    settings = {"NODEPOOL_CLUSTER": CLUSTER}
    agents = [
        Agent(folder, connection, plane.url, name=f"agent-{number}", settings=settings)
        for number in range(REPLICAS)
    ]
    for agent in agents:
        stack.enter_context(agent)
    for agent in agents:
        agent.wait_until_ready()
    if stop.is_set():
        return
    _apply_examples(cluster)
    report(_hints(cluster, plane, folder))


def _apply_examples(cluster: Cluster) -> None:
    """Apply the examples as a user of the cluster, and wait until all NodePools are AtTarget."""
    examples = EXAMPLES.relative_to(Path.cwd()) if EXAMPLES.is_relative_to(Path.cwd()) else EXAMPLES
    report(f"kubectl apply -f {examples}")
    for arguments in (
        ("apply", "-f", str(examples)),
        ("wait", "--for=condition=AtTarget", "nodepools", "--all", f"--timeout={TARGET_S}s"),
        ("get", "nodepools"),
    ):
        done = cluster.run(*arguments, kubeconfig=cluster.user_kubeconfig)
        if done.returncode:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
    report(f"\n{done.stdout.rstrip()}")


def _hints(cluster: Cluster, plane: Plane, folder: Path) -> str:
    """Return the commands for a user to try, and the place of the logs."""
    nodepool = os.path.relpath(Path(sys.executable).with_name("nodepool"))
    return f"""
In another terminal:
  export KUBECONFIG={cluster.user_kubeconfig}
  kubectl get nodepools -o wide
  kubectl describe nodepool training
  kubectl scale nodepool training --replicas=10
  kubectl get nodes -L node.kubernetes.io/instance-type,node.coreweave.cloud/state
  kubectl get nodes -l compute.coreweave.com/node-pool=training
  kubectl events --types=Warning --watch
  kubectl get namespaces --selector=ns.coreweave.cloud/org=control-plane
  kubectl explain nodepool.spec
On the bus, with its quotas, its capacity and its preemptions:
  export NODEPOOL_URL={plane.url} NODEPOOL_ORG={ORG} NODEPOOL_CLUSTER={CLUSTER}
  {nodepool} get quotas
  {nodepool} get capacity
  {nodepool} preempt NODE          a Node of the NodePool batch: kubectl get nodes shows them
  {nodepool} fleet break NODE --fault gpu-lost
Logs are in {folder}. Ctrl-C stops everything and keeps nothing."""


if __name__ == "__main__":
    sys.exit(main())
