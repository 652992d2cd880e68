"""The Nodes of a cluster: what the control plane keeps of them, and what people do to them."""

import json
import re
from collections.abc import Iterator, Sequence

import pytest

from kube.audit import AuditLog
from kube.node_pools import joined, manifest, name_for
from kube.shell import Shell
from nodepool.contract.commands import CordonNode, UncordonNode
from testbed.agent import USER
from testbed.cluster import WITHIN_S, Cluster, Document, wait_until
from testbed.kubelets import Kubelets
from testbed.plane import CPU, ORG, Plane

SILENT_S = 120.0
"""A silence is told once it has lasted half a minute, beyond what a lease is valid for."""
SPEC = {
    "nodeLabels": {"team": "research"},
    "nodeAnnotations": {"owner": "anna"},
    "nodeTaints": [{"key": "dedicated", "value": "training", "effect": "NoSchedule"}],
}
FOREIGN = """\
apiVersion: v1
kind: Node
metadata: {name: foreign, labels: {mine: "yes"}}
spec: {taints: [{key: mine, effect: NoSchedule}]}
"""


@pytest.fixture
def pool(shell: Shell, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a NodePool at its target, one Node."""
    name = name_for(request)
    assert shell.run("kubectl apply -f -", manifest(name, **SPEC)).code == 0
    line = f"kubectl wait --for=condition=AtTarget nodepool/{name} --timeout=60s"
    assert shell.run(line).code == 0
    yield name
    shell.run(f"kubectl delete nodepool {name} --ignore-not-found")


@pytest.fixture
def node(cluster: Cluster, plane: Plane, pool: str) -> str:
    """The name of its Node, which has joined."""
    (name,) = plane.nodes(pool)
    return joined(cluster, name)


def found(shell: Shell, name: str) -> Document | None:
    """A Node of the cluster; None where there is none."""
    printed = shell.run(f"kubectl get node {name} --ignore-not-found -o json")
    document: Document | None = json.loads(printed.out) if printed.out else None
    return document


def labels(shell: Shell, name: str) -> Document:
    """The labels of a Node; none where it is not there."""
    node = found(shell, name)
    given: Document = node["metadata"].get("labels", {}) if node is not None else {}
    return given


def unschedulable(plane: Plane, name: str) -> bool:
    """Whether a Node is cordoned on the bus."""
    node = plane.node(name)
    spec = node["spec"] if node is not None else None
    return isinstance(spec, dict) and bool(spec.get("unschedulable"))


def ready(document: object) -> Sequence[str]:
    """The status of the condition Ready, if it is there."""
    status = document.get("status") if isinstance(document, dict) else None
    conditions = status.get("conditions", ()) if isinstance(status, dict) else ()
    return [each["status"] for each in conditions if each["type"] == "Ready"]


def test_a_node_has_what_its_nodepool_asks_for_and_what_the_platform_gives(
    shell: Shell, plane: Plane, pool: str, node: str
) -> None:
    # Kubernetes takes its own taints back by itself; that none is left at startup is to be seen.
    keys = ["dedicated", "is_gpu"]
    wait_until("it has its taints", lambda: sorted(taint_keys(shell, node)) == keys, WITHIN_S)
    document, wanted = found(shell, node), plane.node(node)

    assert document is not None
    assert wanted is not None
    uid = shell.run(f"kubectl get nodepool {pool} -o jsonpath={{.metadata.uid}}").out
    expected = {
        "compute.coreweave.com/node-pool": pool,
        "compute.coreweave.com/node-pool-uid": uid,
        "kubernetes.io/arch": "amd64",
        "node.coreweave.cloud/class": "gpu",
        "node.coreweave.cloud/reserved": "demo",
        "node.coreweave.cloud/state": "production",
        "node.kubernetes.io/instance-type": "gd-8xh100ib-i128",
        "node.kubernetes.io/type": "gd-8xh100ib-i128",
        "team": "research",
        "topology.kubernetes.io/region": "US-EAST-04",
        "topology.kubernetes.io/zone": "US-EAST-04A",
    }
    assert document["metadata"]["labels"].items() >= expected.items()
    assert document["metadata"]["annotations"]["owner"] == "anna"
    taints = {(each["key"], each.get("value", ""), each["effect"]) for each in taints_of(document)}
    dedicated = ("dedicated", "training", "NoSchedule")
    assert taints == {("is_gpu", "true", "PreferNoSchedule"), dedicated}
    conditions = {each["type"]: each["status"] for each in document["status"]["conditions"]}
    assert conditions["Ready"] == "True"
    assert conditions["CWRegistered"] == "True"
    assert conditions["CWActive"] == "False"


def taints_of(document: Document) -> Sequence[Document]:
    taints: Sequence[Document] = document["spec"].get("taints", ())
    return taints


def taint_keys(shell: Shell, name: str) -> Sequence[str]:
    """The keys of the taints of a Node; none where it is not there."""
    node = found(shell, name)
    return [each["key"] for each in taints_of(node)] if node is not None else []


def test_a_cordon_by_hand_is_kept_and_known_on_the_bus(
    shell: Shell, plane: Plane, pool: str, node: str
) -> None:
    assert shell.run(f"kubectl cordon {node}").out == f"node/{node} cordoned\n"
    wait_until("the bus knows it", lambda: unschedulable(plane, node), WITHIN_S)

    assert shell.run(f"kubectl uncordon {node}").out == f"node/{node} uncordoned\n"
    wait_until("the bus knows it", lambda: not unschedulable(plane, node), WITHIN_S)


def test_a_cordon_on_the_bus_is_seen_by_kubectl(
    shell: Shell, plane: Plane, pool: str, node: str
) -> None:
    place = {"org": ORG, "cluster": plane.cluster, "pool": pool}
    plane.do(lambda client: client.commands.send(CordonNode(**place, node=node)))
    row = f"kubectl get node {node} --no-headers"
    wait_until("it is", lambda: "SchedulingDisabled" in shell.run(row).out, WITHIN_S)

    plane.do(lambda client: client.commands.send(UncordonNode(**place, node=node)))
    wait_until("it is not", lambda: "SchedulingDisabled" not in shell.run(row).out, WITHIN_S)


def test_a_managed_label_is_set_back_and_a_foreign_one_is_left_alone(
    shell: Shell, pool: str, node: str
) -> None:
    assert shell.run(f"kubectl label node {node} --overwrite team=mine rack=seven").code == 0

    wait_until("it is set back", lambda: labels(shell, node).get("team") == "research", WITHIN_S)
    assert labels(shell, node)["rack"] == "seven"


def test_a_change_of_labels_annotations_and_taints_reaches_the_nodes(
    shell: Shell, pool: str, node: str
) -> None:
    spec = """'{"spec": {"nodeLabels": {"team": null, "tier": "gold"}, "nodeTaints": []}}'"""
    assert shell.run(f"kubectl patch nodepool {pool} --type merge -p {spec}").code == 0

    wait_until("it has the label", lambda: labels(shell, node).get("tier") == "gold", WITHIN_S)
    document = found(shell, node)
    assert document is not None
    assert "team" not in document["metadata"]["labels"]
    wait_until("it has its taint", lambda: taint_keys(shell, node) == ["is_gpu"], WITHIN_S)


def test_a_node_deleted_by_hand_is_back_and_stays_in_its_pool(
    shell: Shell, plane: Plane, pool: str, node: str
) -> None:
    before = found(shell, node)
    assert before is not None

    assert shell.run(f"kubectl delete node {node}").out == f'node "{node}" deleted\n'

    wait_until("it is back", lambda: ready(found(shell, node)) == ["True"], WITHIN_S)
    after = found(shell, node)
    assert after is not None
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert labels(shell, node)["compute.coreweave.com/node-pool"] == pool
    assert labels(shell, node)["team"] == "research"
    assert list(plane.nodes(pool)) == [node]


def test_a_kubelet_that_never_comes_leaves_its_node_in_progress(
    shell: Shell, plane: Plane, kubelets: Kubelets
) -> None:
    kubelets.never.add(CPU)
    try:
        given = manifest("absent", instanceType=CPU, **SPEC)
        assert shell.run("kubectl apply -f -", given).code == 0
        row = r"absent cd-gp-i64-erapids 1 1 0 Valid Sufficient Under \S+"
        get = "kubectl get nodepools absent --no-headers"
        wait_until("it waits", lambda: bool(re.fullmatch(row, shell.run(get).rows[0])), WITHIN_S)
        (name,) = plane.nodes("absent")
        assert found(shell, name) is None

        # and it can be deleted all the same
        assert shell.run("kubectl delete nodepool absent --timeout=60s").code == 0
    finally:
        kubelets.never.discard(CPU)


def test_a_silent_kubelet_is_known_on_the_bus_and_heard_again(
    shell: Shell, plane: Plane, kubelets: Kubelets, pool: str, node: str
) -> None:
    kubelets.silence(node)
    wait_until("the bus knows it", lambda: ready(plane.node(node)) == ["Unknown"], SILENT_S)
    wait_until("it is cordoned", lambda: unschedulable(plane, node), SILENT_S)
    row = f"kubectl get node {node} --no-headers"

    def has(status: str) -> bool:
        return shell.run(row).rows[0].split()[1] == status

    wait_until("kubectl sees both", lambda: has("NotReady,SchedulingDisabled"), WITHIN_S)

    kubelets.speak(node)

    wait_until("it is Ready", lambda: ready(plane.node(node)) in ([], ["True"]), WITHIN_S)
    wait_until("it is uncordoned", lambda: not unschedulable(plane, node), WITHIN_S)
    wait_until("kubectl sees it", lambda: has("Ready"), WITHIN_S)


def test_a_foreign_node_is_left_alone(
    shell: Shell, cluster: Cluster, plane: Plane, pool: str
) -> None:
    log = AuditLog(cluster.folder)
    cluster.kubectl("create", "-f", "-", given=FOREIGN)
    cluster.kubectl("wait", "--for=condition=Ready", "node/foreign", "--timeout=60s")

    # Whatever the agent does meanwhile.
    assert shell.run(f"kubectl delete nodepool {pool}").code == 0

    only_mine = lambda: taint_keys(shell, "foreign") == ["mine"]  # noqa: E731
    wait_until("Kubernetes has taken its own taints back", only_mine, WITHIN_S)
    document = found(shell, "foreign")
    assert document is not None
    mine = {key for key in document["metadata"]["labels"] if "kubernetes.io" not in key}
    assert mine == {"mine"}
    assert [each for each in log.requests(USER) if each.name == "foreign"] == []
    assert plane.node("foreign") is None
    cluster.kubectl("delete", "node", "foreign")
