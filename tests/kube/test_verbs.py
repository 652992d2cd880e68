"""What people do with kubectl every day, to NodePools and their Nodes."""

import json
import re
from collections.abc import Iterator, Sequence

import pytest

from kube.audit import AuditLog
from kube.comparing import messages_about
from kube.node_pools import joined, manifest, name_for, works
from kube.shell import Shell
from nodepool.contract.log import Entry
from testbed.cluster import WITHIN_S, Cluster, wait_until
from testbed.plane import Plane

AGE = r"(\d+[smhd])+"
SPEC = "kubectl get nodepool {name} -o jsonpath={{.spec.targetNodes}}"


@pytest.fixture
def pool(shell: Shell, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a NodePool that has been applied, with one Node."""
    name = name_for(request)
    assert shell.run("kubectl apply -f -", manifest(name, 1)).code == 0
    line = f"kubectl wait --for=condition=AtTarget nodepool/{name} --timeout=60s"
    assert shell.run(line).out == f"nodepool.compute.coreweave.com/{name} condition met\n"
    yield name
    shell.run(f"kubectl delete nodepool {name} --ignore-not-found")


def test_scale(shell: Shell, cluster: Cluster, plane: Plane, pool: str) -> None:
    printed = shell.run(f"kubectl scale nodepool {pool} --replicas=2")

    assert printed.out == f"nodepool.compute.coreweave.com/{pool} scaled\n"
    wait_until("it has two Nodes", lambda: len(plane.nodes(pool)) == 2, WITHIN_S)
    wait = f"kubectl wait --for=condition=AtTarget nodepool/{pool} --timeout=60s"
    assert shell.run(wait).code == 0
    nodes = sorted(joined(cluster, each) for each in plane.nodes(pool))
    line = f"kubectl get nodes -l compute.coreweave.com/node-pool={pool}"
    assert sorted(row.split()[0] for row in shell.run(line).rows[1:]) == nodes


def test_wait_does_not_believe_in_a_condition_of_an_older_spec(shell: Shell, pool: str) -> None:
    shell.run(f"kubectl scale nodepool {pool} --replicas=3")
    shell.run(f"kubectl wait --for=condition=AtTarget nodepool/{pool} --timeout=60s")

    printed = shell.run(f"kubectl get nodepool {pool}")

    assert re.fullmatch(
        rf"{pool} gd-8xh100ib-i128 3 0 3 Valid Sufficient Under {AGE}", printed.rows[1]
    ), printed.out


def test_edit(shell: Shell, plane: Plane, pool: str) -> None:
    editor = "sed -i 's/targetNodes: 1/targetNodes: 2/'"
    printed = shell.run(f"kubectl edit nodepool {pool}", KUBE_EDITOR=editor)

    assert printed.out == f"nodepool.compute.coreweave.com/{pool} edited\n"
    wait_until("the bus knows it", lambda: plane.target(pool) == 2, WITHIN_S)


def test_patch(shell: Shell, plane: Plane, pool: str) -> None:
    patch = """'{"spec": {"nodeLabels": {"team": "research"}}}'"""
    printed = shell.run(f"kubectl patch nodepool {pool} --type merge -p {patch}")

    assert printed.out == f"nodepool.compute.coreweave.com/{pool} patched\n"
    labelled = f"kubectl get nodes -l team=research,compute.coreweave.com/node-pool={pool} -o name"
    wait_until("its Node has the label", lambda: len(shell.run(labelled).rows) == 1, WITHIN_S)


def test_an_instance_type_cannot_be_changed(shell: Shell, pool: str) -> None:
    patch = """'{"spec": {"instanceType": "gd-8xa100-i128"}}'"""
    printed = shell.run(f"kubectl patch nodepool {pool} --type merge -p {patch}")

    assert printed.code == 1
    assert "InstanceType cannot be changed" in printed.error


def test_get_nodes_with_columns_of_labels(
    shell: Shell, cluster: Cluster, plane: Plane, pool: str
) -> None:
    (node,) = plane.nodes(pool)
    joined(cluster, node)

    printed = shell.run(
        f"kubectl get nodes -l compute.coreweave.com/node-pool={pool}"
        " -L node.kubernetes.io/instance-type,node.coreweave.cloud/state"
    )

    row = rf"{node} Ready <none> {AGE} v\S+ gd-8xh100ib-i128 production"
    assert printed.rows[0] == "NAME STATUS ROLES AGE VERSION INSTANCE-TYPE STATE"
    assert [bool(re.fullmatch(row, each)) for each in printed.rows[1:]] == [True], printed.out


def test_a_watch_shows_each_change(shell: Shell, plane: Plane, pool: str) -> None:
    with shell.running(f"kubectl get nodepools {pool} -w") as watch:
        watch.wait_for(rf"^{pool} gd-8xh100ib-i128 1 0 1 Valid Sufficient Under")
        shell.run(f"kubectl scale nodepool {pool} --replicas=2")
        watch.wait_for(rf"^{pool} gd-8xh100ib-i128 2 0 2 Valid Sufficient Under")


def test_events(shell: Shell, pool: str) -> None:
    line = f"kubectl events --for nodepool/{pool}"
    wait_until("they are there", lambda: len(shell.run(line).rows) == 5, WITHIN_S)

    found = shell.run(line).rows
    assert found[0] == "LAST SEEN TYPE REASON OBJECT MESSAGE"
    expected = ["CWNodeAssigned", "CWNodePoolCreated", "CWNodeRegistered", "CWNodeRequestQueued"]
    assert sorted(row.split()[2] for row in found[1:]) == expected


def test_kubectl_get_events_knows_no_types(shell: Shell) -> None:
    """That flag is one of `kubectl events`; `kubectl get` filters by fields."""
    printed = shell.run("kubectl get events --types=Warning -w")

    assert printed.code == 1
    assert "unknown flag: --types" in printed.error


def test_warnings_are_watched_in_both_spellings(shell: Shell, plane: Plane, pool: str) -> None:
    over = manifest("over-quota", 5_000)
    with (
        shell.running("kubectl events --types=Warning -w") as events,
        shell.running("kubectl get events --field-selector type=Warning -w") as got,
    ):
        shell.run("kubectl apply -f -", over)
        events.wait_for(r"Warning CWOverQuota NodePool/over-quota ")
        got.wait_for(r"Warning CWOverQuota nodepool/over-quota ")
    assert shell.run("kubectl delete nodepool over-quota").code == 0


@pytest.mark.parametrize("field", ["nodepool", "nodepool.spec", "nodepool.spec.targetNodes"])
def test_explain(shell: Shell, field: str) -> None:
    printed = shell.run(f"kubectl explain {field}")

    assert printed.code == 0
    assert printed.rows[:3] == [
        "GROUP: compute.coreweave.com",
        "KIND: NodePool",
        "VERSION: v1alpha1",
    ]
    description = printed.rows[printed.rows.index("DESCRIPTION:") + 1]
    assert len(description) > 10, "it says what the field is"


def test_a_repeated_apply_is_unchanged_and_changes_nothing(
    shell: Shell, cluster: Cluster, plane: Plane, pool: str
) -> None:
    # given a NodePool of which nothing more is written
    read, other = f"kubectl get nodepool {pool} -o jsonpath={{.metadata.resourceVersion}}", "later"

    def later() -> tuple[str, Sequence[Entry]]:
        """Its version and its messages, once another one has been through the agent after it."""
        works(cluster, other)
        return shell.run(read).out, messages_about(plane, pool)

    wait_until("it is at rest", lambda: later() == later(), WITHIN_S)
    before, on_bus = later(), plane.pool(pool)
    assert before[1] != [], "the log has its creation at least"
    log = AuditLog(cluster.folder)

    # when its manifest is applied again and again
    for _ in range(3):
        printed = shell.run("kubectl apply -f -", manifest(pool))
        assert printed.out == f"nodepool.compute.coreweave.com/{pool} unchanged\n"

    # then nobody has written it, and no message about it was stored
    assert later() == before
    assert plane.pool(pool) == on_bus
    requests = [each for each in log.requests() if each.resource.startswith("nodepools")]
    assert {each.verb for each in requests if each.name != other} <= {"get", "list", "watch"}


def test_server_side_apply(shell: Shell, plane: Plane, pool: str) -> None:
    given = manifest(pool, 2)
    line = "kubectl apply --server-side --force-conflicts -f -"

    first, second = shell.run(line, given), shell.run(line, given)

    said = f"nodepool.compute.coreweave.com/{pool} serverside-applied\n"
    assert (first.out, second.out) == (said, said)
    wait_until("the bus knows it", lambda: plane.target(pool) == 2, WITHIN_S)
    # Applied again later, what the agent writes is no conflict.
    assert shell.run("kubectl apply --server-side -f -", given).out == said


@pytest.mark.parametrize("how", ["server", "client"])
def test_dry_run_changes_nothing(shell: Shell, plane: Plane, pool: str, how: str) -> None:
    printed = shell.run(f"kubectl apply --dry-run={how} -f -", manifest(pool, 9))

    assert printed.rows[-1].startswith(f"nodepool.compute.coreweave.com/{pool} configured")
    assert shell.run(SPEC.format(name=pool)).out == "1"
    assert plane.target(pool) == 1


def test_a_manifest_with_a_fault_is_refused_with_its_field(shell: Shell) -> None:
    wrong = manifest("wrong", "many")
    printed = shell.run("kubectl apply -f -", wrong)

    assert printed.code == 1
    assert "spec.targetNodes" in printed.error


def test_delete_returns_once_its_nodes_are_gone(shell: Shell, plane: Plane, pool: str) -> None:
    names = list(plane.nodes(pool))

    printed = shell.run(f"kubectl delete nodepool {pool}")

    assert printed.out == f'nodepool.compute.coreweave.com "{pool}" deleted\n'
    assert plane.pool(pool) is None
    assert [name for name in names if plane.node(name) is not None] == []
    left = f"kubectl get nodes -l compute.coreweave.com/node-pool={pool} -o name"
    wait_until("its Nodes are gone", lambda: shell.run(left).out == "", WITHIN_S)


def test_the_spec_that_people_see_is_that_of_the_bus(shell: Shell, plane: Plane, pool: str) -> None:
    plane.do(lambda client: client.nodepools.scale(pool, 2))

    wait_until("kubectl shows it", lambda: shell.run(SPEC.format(name=pool)).out == "2", WITHIN_S)
    found = plane.pool(pool)
    assert found is not None
    shown = json.loads(shell.run(f"kubectl get nodepool {pool} -o json").out)
    assert shown["spec"] == found["spec"]
