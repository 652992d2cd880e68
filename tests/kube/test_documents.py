"""Each line of the product's documentation that calls kubectl, pasted as it is printed there."""

import json
import re
from collections.abc import Iterator, Sequence

import pytest

from kube.node_pools import joined
from kube.shell import Shell, rows
from support.described import DESCRIBED
from testbed.cluster import WITHIN_S, Cluster, wait_until
from testbed.plane import Plane

AGE = r"(\d+[smhd])+"
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
TEST_POOL = """\
apiVersion: compute.coreweave.com/v1alpha1
kind: NodePool
metadata:
  name: test-pool
spec:
  instanceType: gd-8xa100-i128
  targetNodes: 1
"""
COLUMNS = "NAME INSTANCE TYPE TARGET INPROGRESS CURRENT VALIDATED CAPACITY QUOTA AGE"
WIDE_COLUMNS = COLUMNS.replace("AGE", "ALLOCATEDNODES ALLOCATED ALLOCATEDREASON ACCEPTED AGE")
DIFFERENT = {
    "Annotations": "Annotations: .*",
    "Creation Timestamp": f"Creation Timestamp: {TIME}",
    "Resource Version": r"Resource Version: \d+",
    "UID": r"UID: [0-9a-f-]{36}",
    "Last Transition Time": f"Last Transition Time: {TIME}",
    "Events": "Events:.*",
}
"""What the lines are like that differ from one NodePool to another, by their keys."""
JSONPATH_PENDING = r"'{.metadata.labels.qos\.coreweave\.cloud/pending-preemption}'"
NOT_DOCUMENTED = (
    "Finalizers",
    "compute.coreweave.com/node-pool",
    "Node Profile",
    "Observed Generation",
)


@pytest.fixture(scope="module")
def test_pool(shell: Shell) -> Iterator[str]:
    """The NodePool of the documentation, at its target."""
    created = shell.run("kubectl create -f -", TEST_POOL)
    assert (created.code, created.error) == (0, "")
    met = shell.run("kubectl wait --for=condition=AtTarget nodepool/test-pool --timeout=60s")
    assert met.out == "nodepool.compute.coreweave.com/test-pool condition met\n"
    yield "test-pool"
    shell.run("kubectl delete nodepool test-pool")


def matches(found: Sequence[str], patterns: Sequence[str]) -> bool:
    """Whether each line matches the pattern in its place."""
    return len(found) == len(patterns) and all(
        re.fullmatch(pattern, line) for line, pattern in zip(found, patterns, strict=True)
    )


def without_known_differences(described: str) -> Sequence[str]:
    """What `kubectl describe` prints without what the documentation does not show.

    Annotations: the agent keeps there what both sides have agreed on. Finalizers: that of the
    agent. Observed Generation: without it `kubectl wait` would believe in an old condition. Node
    Profile: the documentation lists the field, and its example does not show it. Events: those of
    the last hour; the NodePool of the documentation is older than that.
    """
    left = []
    section = ""
    for line in described.splitlines():
        key = line.strip().partition(":")[0]
        if not line.startswith((" ", "\t")):
            section = key
        elif section in ("Annotations", "Events") or key in NOT_DOCUMENTED:
            continue
        left.append(line)
    return rows("\n".join(left))


def test_get_nodepools(shell: Shell, test_pool: str) -> None:
    printed = shell.run("kubectl get nodepools")

    assert printed.rows[0] == COLUMNS
    expected = rf"test-pool gd-8xa100-i128 1 0 1 Valid Sufficient Under {AGE}"
    assert [row for row in printed.rows[1:] if re.fullmatch(expected, row)], printed.out


def test_get_nodepools_wide(shell: Shell, test_pool: str) -> None:
    printed = shell.run("kubectl get nodepools -o wide")

    # Where the documentation has a dash for each deprecated column, kubectl prints nothing: a
    # column of a CustomResourceDefinition cannot say what stands there without a value.
    assert printed.rows[0] == WIDE_COLUMNS
    expected = rf"test-pool gd-8xa100-i128 1 0 1 Valid Sufficient Under( <none>){{0,4}} {AGE}"
    assert [row for row in printed.rows[1:] if re.fullmatch(expected, row)], printed.out


def test_describe_nodepools(shell: Shell, test_pool: str) -> None:
    printed = shell.run("kubectl describe nodepools test-pool")

    found = without_known_differences(printed.out)
    documented = [(row, row.partition(":")[0]) for row in rows(DESCRIBED)]
    expected = [DIFFERENT.get(key, re.escape(row)) for row, key in documented]
    assert matches(found, expected), "\n".join(found)


def test_describe_shows_the_events_of_a_nodepool(shell: Shell, test_pool: str) -> None:
    def reasons() -> Sequence[str]:
        lines = shell.run("kubectl describe nodepools test-pool").rows
        events = lines[lines.index("Events:") + 3 :] if "Events:" in lines else []
        return [line.split()[1] for line in events]

    expected = ["CWNodePoolCreated", "CWNodeRequestQueued", "CWNodeAssigned", "CWNodeRegistered"]
    wait_until("its events are there", lambda: sorted(reasons()) == sorted(expected), WITHIN_S)


def test_get_namespaces_of_the_control_plane(shell: Shell) -> None:
    line = "kubectl get namespaces --selector=ns.coreweave.cloud/org=control-plane"
    printed = shell.run(line)

    names = ("hpc-verification", "kube-system", "node-problem-detector")
    expected = ["NAME STATUS AGE", *(rf"{name} Active {AGE}" for name in names)]
    assert matches(printed.rows, expected), printed.out


def test_the_warnings_of_a_preemption_are_watched(
    shell: Shell, plane: Plane, cluster: Cluster
) -> None:
    # given a Spot NodePool, as documented but for what the documentation leaves out
    manifest = """\
apiVersion: compute.coreweave.com/v1alpha1
kind: NodePool
metadata:
  name: my-spot-pool
spec:
  region: {zone}
  computeClass: spot
  instanceType: gd-8xh100ib-i128
  targetNodes: 1
"""
    assert shell.run("kubectl apply -f -", manifest.format(zone="US-EAST-04A")).code == 0
    line = "kubectl wait --for=condition=AtTarget nodepool/my-spot-pool --timeout=60s"
    assert shell.run(line).code == 0
    (node,) = plane.nodes("my-spot-pool")
    joined(cluster, node)

    # when it is preempted while somebody watches
    pasted = 'kubectl events --types=Warning --watch | grep "Reason: Preemption pending"'
    with shell.running(pasted) as watch:
        plane.do(lambda client: client.nodes.preempt("my-spot-pool", node))
        watch.wait_for(f"Node/{node}")
        watch.wait_for("NodePool/my-spot-pool")

    # then the Node and the NodePool are told
    about = {re.sub(r"^\S+ ", "", row).split(" Reason:")[0] for row in watch.rows}
    warning = "Warning Preemption pending"
    assert about == {f"{warning} Node/{node}", f"{warning} NodePool/my-spot-pool"}, watch.rows
    labelled = f"node/{node} --for=jsonpath={JSONPATH_PENDING}=true"
    assert shell.run(f"kubectl wait {labelled} --timeout=60s").code == 0
    found = json.loads(shell.run(f"kubectl get node {node} -o json").out)
    assert found["spec"]["unschedulable"] is True
    plane.do(lambda client: client.nodes.acknowledge_preemption("my-spot-pool", node))
    shell.run("kubectl delete nodepool my-spot-pool")


def test_the_manifest_of_the_spot_page_names_a_version_that_has_no_nodepools(shell: Shell) -> None:
    printed = shell.run(
        "kubectl apply -f -",
        """\
apiVersion: v1
kind: NodePool
metadata:
  name: my-spot-pool
spec:
  region: EU-SOUTH-04A
  computeClass: spot
""",
    )

    assert printed.code == 1
    assert 'no matches for kind "NodePool" in version "v1"' in printed.error
