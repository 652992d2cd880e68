"""What the test bed can do: parts that restart, data that goes back, a network that is cut."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kube.audit import AuditLog
from kube.proxy import Proxy
from testbed.cluster import WITHIN_S, Cluster, wait_until
from testbed.components import API_SERVER, CONTROLLER_MANAGER, ETCD, SCHEDULER

NODE = """\
apiVersion: v1
kind: Node
metadata: {name: bed, annotations: {kwok.x-k8s.io/node: fake}}
spec: {taints: [{key: bed, effect: NoSchedule}]}
"""


STARTS = """\
import signal, sys
from pathlib import Path
from testbed.components import API_SERVER, Process

script = "trap '' TERM; while true; do sleep 1; done"
process = Process(["sh", "-c", script], Path(sys.argv[1]), API_SERVER)
process.start()
print(process.pid, flush=True)
signal.pause()
"""
"""A program with a part that does not heed SIGTERM."""


def test_the_parts_end_with_the_process_that_started_them_however_it_ends(tmp_path: Path) -> None:
    # given a part that waits for ever once it is to end, as an API server for its watches
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", STARTS, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())

        # when the process that has started it is killed
        parent.kill()

    # then it ends, too
    wait_until("it has ended", lambda: not _runs(pid), WITHIN_S)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.fixture
def node(cluster: Cluster) -> Iterator[str]:
    """A Node that is Ready, and takes no Pods but those that are bound to it."""
    cluster.kubectl("apply", "-f", "-", given=NODE)
    cluster.kubectl("wait", "--for=condition=Ready", "node/bed", "--timeout=60s")
    yield "bed"
    cluster.kubectl("delete", "node", "bed")


def run_pod(cluster: Cluster, name: str, metadata: Mapping[str, object], grace_s: int) -> None:
    """Runs a Pod on the Node; returns once it is ready."""
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {
            "nodeName": "bed",
            "terminationGracePeriodSeconds": grace_s,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "only", "image": "none"}],
        },
    }
    cluster.kubectl("apply", "-f", "-", given=json.dumps(document))
    cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")


def test_the_user_is_an_administrator_by_rbac_alone(cluster: Cluster) -> None:
    said = json.loads(
        cluster.run("auth", "whoami", "-o", "json", kubeconfig=cluster.user_kubeconfig).stdout
    )
    can = cluster.run("auth", "can-i", "*", "*", kubeconfig=cluster.user_kubeconfig).stdout

    groups = ["customers", "system:authenticated"]
    assert (said["status"]["userInfo"]["groups"], can) == (groups, "yes\n")


def test_the_cluster_has_the_admission_policies_of_1_36(cluster: Cluster) -> None:
    names = cluster.kubectl("api-resources", "--api-group=admissionregistration.k8s.io", "-oname")

    assert "mutatingadmissionpolicies.admissionregistration.k8s.io" in names.splitlines()
    assert "validatingadmissionpolicies.admissionregistration.k8s.io" in names.splitlines()


@pytest.mark.parametrize(
    ("shutdown", "grace_s", "least_s"),
    [({}, 40, 0), ({"kubelets/shutdown": "1s"}, 40, 1), ({"kubelets/shutdown": "killed"}, 4, 2)],
    ids=["at once", "after its preStop hook", "killed after its grace period"],
)
def test_a_pod_takes_its_time_to_end(
    cluster: Cluster, node: str, shutdown: Mapping[str, str], grace_s: int, least_s: float
) -> None:
    run_pod(cluster, "ending", {"annotations": shutdown}, grace_s)

    began = time.monotonic()
    cluster.kubectl("delete", "pod", "ending")

    # Far from a grace period that it need not wait for; the machine may be busy.
    assert least_s <= time.monotonic() - began < 20


def test_a_pod_with_a_finalizer_that_hangs_has_failed_and_is_still_there(
    cluster: Cluster, node: str
) -> None:
    run_pod(cluster, "held", {"finalizers": ["example.com/hangs"]}, grace_s=1)

    cluster.kubectl("delete", "pod", "held", "--wait=false")
    cluster.kubectl("wait", "--for=jsonpath={.status.phase}=Failed", "pod/held", "--timeout=60s")

    patch = '{"metadata": {"finalizers": null}}'
    cluster.kubectl("patch", "pod", "held", "--type=merge", "-p", patch)
    cluster.kubectl("wait", "--for=delete", "pod/held", "--timeout=60s")


@pytest.mark.parametrize("part", [API_SERVER, ETCD, CONTROLLER_MANAGER, SCHEDULER])
def test_a_part_is_killed_and_started_again_with_what_was_stored(
    cluster: Cluster, part: str
) -> None:
    cluster.kubectl("create", "configmap", "kept")

    cluster.kill(part)
    assert not cluster.parts[part].is_running
    cluster.start(part)

    wait_until("the API server is ready", cluster.is_ready, WITHIN_S)
    cluster.kubectl("delete", "configmap", "kept")


def test_a_snapshot_of_etcd_has_what_was_there_and_nothing_later(cluster: Cluster) -> None:
    cluster.kubectl("create", "configmap", "before")
    snapshot = cluster.snapshot("snapshot-of-the-bed")
    cluster.kubectl("create", "configmap", "after")

    cluster.restore(snapshot)

    names = [item["metadata"]["name"] for item in cluster.objects("configmaps", "default")]
    assert "before" in names
    assert "after" not in names
    cluster.kubectl("delete", "configmap", "before")


def test_a_proxy_cuts_a_network_and_mends_it(cluster: Cluster) -> None:
    with Proxy(cluster.port) as proxy:
        connection = cluster.connect("through-the-proxy", "admin", proxy.port)
        get = ("get", "namespace", "default", "-o", "name")
        changes = [(proxy.cut, 1), (proxy.mend, 20), (proxy.freeze, 1), (proxy.mend, 20)]

        outputs = [cluster.run(*get, kubeconfig=connection).stdout]
        for change, limit_s in changes:
            change()
            limit = f"--request-timeout={limit_s}s"
            outputs.append(cluster.run(*get, limit, kubeconfig=connection).stdout)

    there = "namespace/default\n"
    assert outputs == [there, "", there, "", there]


def test_requests_are_counted_by_user_verb_and_resource(cluster: Cluster) -> None:
    log = AuditLog(cluster.folder)

    for _ in range(3):
        cluster.run("get", "--raw", "/api/v1/nodes?limit=5", kubeconfig=cluster.user_kubeconfig)
    cluster.run("get", "--raw", "/api/v1/nodes/none", kubeconfig=cluster.user_kubeconfig)

    # kubectl may ask for the version of the server beside them, which is no object.
    def seen() -> Counter[tuple[str, str]]:
        return Counter({key: number for key, number in log.counts("user").items() if key[1]})

    wait_until("all are written", lambda: seen().total() == 4, WITHIN_S)
    assert seen() == {("list", "nodes"): 3, ("get", "nodes"): 1}
    requests = [(each.name, each.code) for each in log.requests("user") if each.resource]
    assert requests == [("", 200), ("", 200), ("", 200), ("none", 404)]
