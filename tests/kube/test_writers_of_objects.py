"""The ways in which people and tools write NodePool objects, beside an agent that does so too."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kube.node_pools import manifest, name_for
from kube.shell import Printed, Shell
from testbed.agent import USER, Agent
from testbed.cluster import WITHIN_S, Cluster, wait_until
from testbed.paused import pause_process
from testbed.plane import A100, Plane, node_pool

AGREED, FINALIZER = "compute.coreweave.com/agreed", "compute.coreweave.com/node-pool"
CONFIGURED = "nodepool.compute.coreweave.com/{} configured\n"
UNCHANGED = "nodepool.compute.coreweave.com/{} unchanged\n"


class Writers:
    """A NodePool in the cluster and on the bus."""

    def __init__(self, shell: Shell, plane: Plane, name: str) -> None:
        self.shell, self.plane, self.name = shell, plane, name

    def run(self, line: str, given: str | None = None, **variables: str) -> Printed:
        """Runs a line of a user; NAME in it is the name of the NodePool."""
        return self.shell.run(line.replace("NAME", self.name), given, **variables)

    def found(self) -> Mapping[str, Any]:
        """The object as the API server has it."""
        document: Mapping[str, Any] = json.loads(self.run("kubectl get np NAME -o json").out)
        return document

    def is_rested(self) -> bool:
        """Whether both sides have one spec and the same labels, and the status is of it."""
        there = self.run("kubectl get np NAME -o json --ignore-not-found").out
        other: Any = self.plane.pool(self.name)
        if not there or other is None:
            return not there and other is None
        found = json.loads(there)
        metadata, conditions = found["metadata"], found.get("status", {}).get("conditions", ())
        labels = metadata.get("labels", {}), other["metadata"].get("labels", {})
        types = [each["type"] for each in conditions]
        return (
            found["spec"] == other["spec"]
            and labels[0] == labels[1]
            and types == [each["type"] for each in other["status"]["conditions"]]
            and "AtTarget" in types
            and AGREED in metadata.get("annotations", {})
            and {each["observedGeneration"] for each in conditions} == {metadata["generation"]}
        )

    def rest(self, target: int | None) -> None:
        """Returns once both sides agree on a target, None for no NodePool; raises TimeoutError."""
        wait_until(
            f"both sides of {self.name} have {target}",
            lambda: self.target() == target and self.is_rested(),
            WITHIN_S,
        )

    def target(self) -> object:
        """The target on the bus; None where there is no such NodePool."""
        return self.plane.target(self.name)

    def current(self) -> object:
        """Return how many Nodes the NodePool has on the bus; earlier tests may free machines."""
        found: Any = self.plane.pool(self.name)  # Any: JSON of the bus, indexed below.
        return found["status"]["currentNodes"]

    def uid(self) -> str:
        """The uid of the NodePool on the bus."""
        found: Any = self.plane.pool(self.name)
        assert found is not None, f"the bus has {self.name}"
        return str(found["metadata"]["uid"])


@pytest.fixture(scope="module")
def shell(declared: Cluster, plane: Plane, agent: Agent) -> Shell:
    """The terminal of a user, beside a cluster in which all but the kubelets is at work."""
    return Shell(declared)


@pytest.fixture
def pool(shell: Shell, plane: Plane, request: pytest.FixtureRequest) -> Iterator[Writers]:
    """A NodePool of no Nodes, which `kubectl create` has made and both sides have."""
    writers = Writers(shell, plane, name_for(request))
    assert writers.run("kubectl create -f -", manifest(writers.name, 0)).code == 0
    writers.rest(0)
    yield writers
    writers.run("kubectl delete np NAME --ignore-not-found --timeout=60s")


# kubectl replace.


def test_replace_is_a_change_like_any_other(pool: Writers) -> None:
    before = pool.found()

    metadata = {"name": pool.name, "labels": {"team": "red"}}
    whole = {**node_pool(pool.name, targetNodes=3), "metadata": metadata}
    printed = pool.run("kubectl replace -f -", json.dumps(whole))

    # Then it reaches the bus, and what the agent has noted on the object has stayed.
    assert printed.out == f"nodepool.compute.coreweave.com/{pool.name} replaced\n"
    pool.rest(3)
    found = pool.found()
    assert found["metadata"]["finalizers"] == [FINALIZER]
    assert found["metadata"]["uid"] == before["metadata"]["uid"]
    assert found["metadata"]["labels"] == {"team": "red"}


def test_replace_with_the_old_content_changes_nothing(pool: Writers) -> None:
    before = pool.uid(), pool.found()["metadata"]["generation"]

    pool.run("kubectl replace -f -", manifest(pool.name, 0))
    pool.rest(0)

    assert (pool.uid(), pool.found()["metadata"]["generation"]) == before


def test_what_is_replaced_and_deleted_at_once_is_gone_on_the_bus(pool: Writers) -> None:
    line = "kubectl replace -f - && kubectl delete np NAME --timeout=60s"

    printed = pool.run(line, manifest(pool.name, 2))

    assert printed.code == 0, printed.error
    pool.rest(None)


# kubectl apply.


def test_client_side_apply_is_quiet_and_puts_its_value_back(pool: Writers) -> None:
    apply = ("kubectl apply -f -", manifest(pool.name, 1))
    pool.run(*apply)
    pool.rest(1)

    # Applied again it says that nothing has changed, whatever the agent has written since.
    assert pool.run(*apply).out == UNCHANGED.format(pool.name)

    # After a change on the bus, the value of the file becomes a command.
    pool.plane.do(lambda client: client.nodepools.scale(pool.name, 4))
    pool.rest(4)
    assert pool.run(*apply).out == CONFIGURED.format(pool.name)
    pool.rest(1)


def test_server_side_apply_again_writes_nothing(pool: Writers) -> None:
    # Without Nodes, so that its status comes to rest as well.
    apply = ("kubectl apply --server-side --force-conflicts -f -", manifest(pool.name, 0))
    pool.run(*apply)
    pool.rest(0)
    before = pool.found()["metadata"]["resourceVersion"]

    printed = pool.run(*apply)

    assert printed.out == f"nodepool.compute.coreweave.com/{pool.name} serverside-applied\n"
    assert pool.found()["metadata"]["resourceVersion"] == before


def test_the_three_applies_after_a_change_on_the_bus(pool: Writers) -> None:
    # given a manager that owns the target, which is then changed on the bus
    apply = "kubectl apply --server-side --field-manager=red -f -"
    assert pool.run(f"{apply} --force-conflicts", manifest(pool.name, 1)).code == 0
    pool.rest(1)
    pool.plane.do(lambda client: client.nodepools.scale(pool.name, 3))
    pool.rest(3)

    # when the old value, the same value and a new value are applied
    old, same, new = (pool.run(apply, manifest(pool.name, target)) for target in (1, 3, 4))

    # then only the same value is taken without force, and the conflict names the agent
    conflict = 'conflict with "nodepool-agent"'
    assert (old.code, same.code, new.code) == (1, 0, 1)
    assert conflict in old.error
    assert conflict in new.error
    assert ".spec.targetNodes" in new.error

    # and by force a new value becomes a command
    assert pool.run(f"{apply} --force-conflicts", manifest(pool.name, 4)).code == 0
    pool.rest(4)
    assert pool.run(apply, manifest(pool.name, 5)).code == 0
    pool.rest(5)


def test_two_managers_conflict_with_each_other_and_one_forces(pool: Writers) -> None:
    apply = "kubectl apply --server-side -f - --field-manager="
    assert pool.run(f"{apply}red --force-conflicts", manifest(pool.name, 1)).code == 0
    pool.rest(1)

    refused = pool.run(f"{apply}blue", manifest(pool.name, 2))
    assert refused.code == 1
    assert 'conflict with "red"' in refused.error
    assert pool.target() == 1

    assert pool.run(f"{apply}blue --force-conflicts", manifest(pool.name, 2)).code == 0
    pool.rest(2)


# kubectl edit, patch and label.


def test_an_edit_is_merged_with_a_status_that_came_meanwhile(pool: Writers, tmp_path: Path) -> None:
    # given an editor that lets the bus change while the file is open
    pool.plane.do(lambda client: client.nodepools.scale(pool.name, 2))
    pool.rest(2)
    label = f"kubectl patch np {pool.name} --subresource=status --type=merge"
    editor = tmp_path / "editor"
    editor.write_text(
        f"""#!/bin/sh
{label} -p '{{"status":{{"currentNodes":7}}}}' > /dev/null || exit 1
sed -i 's/targetNodes: 2/targetNodes: 5/' "$1"
"""
    )
    editor.chmod(0o755)

    # when it is closed
    printed = pool.run("kubectl edit np NAME", KUBE_EDITOR=str(editor))

    # then the edit is taken, and the status is that of the bus again
    assert printed.out == f"nodepool.compute.coreweave.com/{pool.name} edited\n"
    pool.rest(5)
    wait_until(
        "the status is the read model's",
        lambda: pool.found()["status"]["currentNodes"] == pool.current(),
        WITHIN_S,
    )


def test_the_finalizer_and_the_agreement_cannot_be_taken_from_a_living_object(
    pool: Writers,
) -> None:
    before = pool.found()["metadata"]
    patch = {"metadata": {"finalizers": None, "annotations": None}}

    printed = pool.run(f"kubectl patch np NAME --type=merge -p '{json.dumps(patch)}'")

    after = pool.found()["metadata"]
    assert printed.code == 0, printed.error
    assert after["finalizers"] == before["finalizers"]
    assert after["annotations"][AGREED] == before["annotations"][AGREED]


def test_labels_alone_go_to_the_bus_and_back(pool: Writers) -> None:
    for value in ("red", "blue", "red"):
        assert pool.run(f"kubectl label --overwrite np NAME team={value}").code == 0
        pool.rest(0)
        assert pool.found()["metadata"]["labels"] == {"team": value}

    assert pool.run("kubectl label np NAME team-").code == 0
    pool.rest(0)
    assert pool.found()["metadata"].get("labels", {}) == {}
    assert pool.found()["metadata"]["generation"] == 1


def test_a_change_that_loses_is_set_back_and_described(pool: Writers, agent: Agent) -> None:
    # given an agent that stands still, while both sides change one field
    with pause_process(agent.pid):
        pool.plane.do(lambda client: client.nodepools.scale(pool.name, 3))
        assert pool.run("kubectl scale np NAME --replicas=5").code == 0

    # then the bus decides, and kubectl describe says what was not taken, and why
    pool.rest(3)
    assert pool.found()["spec"]["targetNodes"] == 3
    told = (
        r"Warning +CWNodePoolNodesRequestFailed .* spec\.targetNodes: 5 is not taken, 3 holds: it"
    )
    line = "kubectl describe np NAME"
    wait_until("it is told", lambda: re.search(told, pool.run(line).out) is not None, WITHIN_S)


def test_another_instance_type_takes_another_object(pool: Writers) -> None:
    before = pool.uid()
    refused = pool.run("kubectl apply -f -", manifest(pool.name, 2, instanceType=A100))
    assert refused.code == 1
    assert "InstanceType cannot be changed" in refused.error

    assert pool.run("kubectl delete np NAME --timeout=60s").code == 0
    assert pool.run("kubectl apply -f -", manifest(pool.name, 2, instanceType=A100)).code == 0

    pool.rest(2)
    assert pool.found()["spec"]["instanceType"] == A100
    assert pool.uid() != before


# Deletion.


def test_an_object_that_is_freed_by_force_is_deleted_on_the_bus(pool: Writers) -> None:
    free = """kubectl patch np NAME --type=merge -p '{"metadata":{"finalizers":null}}'"""
    line = f"kubectl delete np NAME --wait=false && {free}"

    printed = pool.run(line)

    # Whether the agent was faster, or the person: there is no such NodePool any more.
    assert printed.code == 0 or "NotFound" in printed.error, printed.error
    pool.rest(None)


def test_an_object_that_goes_past_the_agent_is_deleted_on_the_bus(
    pool: Writers, declared: Cluster, agent: Agent
) -> None:
    # given an agent that stands still, while an account that no policy holds back frees the object
    free = '{"metadata":{"finalizers":null}}'
    with pause_process(agent.pid):
        declared.kubectl("patch", "np", pool.name, "--type=merge", "-p", free, "--as", USER)
        declared.kubectl("delete", "np", pool.name, "--timeout=60s")
        assert pool.target() == 0

    # then the bus deletes it, and nobody makes it anew
    pool.rest(None)


def test_what_has_lost_the_finalizer_gets_it_back(pool: Writers, declared: Cluster) -> None:
    free = '{"metadata":{"finalizers":null}}'

    declared.kubectl("patch", "np", pool.name, "--type=merge", "-p", free, "--as", USER)

    wait_until(
        "it has it again",
        lambda: pool.found()["metadata"].get("finalizers") == [FINALIZER],
        WITHIN_S,
    )


def test_an_edit_of_an_object_that_has_lost_the_agreement_is_taken(
    pool: Writers, declared: Cluster, agent: Agent
) -> None:
    # given an object whose agreement goes while the agent looks elsewhere, with an edit
    patch = {"metadata": {"annotations": {AGREED: None}}, "spec": {"targetNodes": 4}}
    with pause_process(agent.pid):
        given = ("patch", "np", pool.name, "--type=merge", "-p", json.dumps(patch))
        declared.kubectl(*given, "--as", USER)

    pool.rest(4)
