"""What kubectl changes of NodePools and awaits of them, where no agent runs."""

import json
import os
import stat
import subprocess
from pathlib import Path

from kube.declared import HEALTHY, applied, conditions, delete, set_status
from testbed.cluster import WITHIN_S, Cluster, wait_until
from testbed.plane import A100, H100, node_pool


def test_the_same_manifest_applied_again_changes_nothing(declared: Cluster) -> None:
    taint = {"key": "team", "effect": "NoSchedule"}
    whole = node_pool("again", nodeTaints=[taint], nodeLabels={"team": "red"}, image={})
    given = json.dumps(whole)
    with applied(declared, whole):
        version = ("get", "np", "again", "-o", "jsonpath={.metadata.resourceVersion}")
        before = declared.kubectl(*version)
        printed = declared.kubectl("apply", "-f", "-", given=given)
        difference = declared.run("diff", "-f", "-", given=given)
        after = declared.kubectl(*version)

    assert printed == "nodepool.compute.coreweave.com/again unchanged\n"
    assert (difference.returncode, difference.stdout) == (0, "")
    assert before == after


def test_two_appliers_own_fields_and_taints_of_their_own(declared: Cluster) -> None:
    # given a NodePool that one applies
    ours = {"key": "ours", "effect": "NoSchedule"}
    theirs = {"key": "theirs", "effect": "NoSchedule"}
    apply = ("apply", "--server-side", "-f", "-")
    document = node_pool("shared", nodeTaints=[ours])
    declared.kubectl(*apply, "--field-manager=ours", given=json.dumps(document))

    # when another one applies a taint of its own
    spec = {"instanceType": H100, "nodeTaints": [theirs]}
    declared.kubectl(
        *apply, "--field-manager=theirs", given=json.dumps({**node_pool("shared"), "spec": spec})
    )

    # then both are there, and a field of the other one is a conflict
    taints = "jsonpath={.spec.nodeTaints[*].key}"
    assert declared.kubectl("get", "np", "shared", "-o", taints) == "ours theirs"
    conflict = declared.run(
        *apply, "--field-manager=theirs", given=json.dumps(node_pool("shared", targetNodes=9))
    )
    assert 'conflict with "ours": .spec.targetNodes' in conflict.stderr

    # and applied again, nothing changes
    version = ("get", "np", "shared", "-o", "jsonpath={.metadata.resourceVersion}")
    before = declared.kubectl(*version)
    declared.kubectl(*apply, "--field-manager=ours", given=json.dumps(document))
    assert declared.kubectl(*version) == before
    delete(declared, "shared")


def test_scale_sets_the_target_and_reads_the_current_nodes(declared: Cluster) -> None:
    with applied(declared, node_pool("scaled")):
        set_status(declared, "scaled", currentNodes=1)
        printed = declared.kubectl("scale", "nodepool", "scaled", "--replicas=3")
        scale = json.loads(
            declared.kubectl("get", "np", "scaled", "--subresource=scale", "-o", "json")
        )
        target = declared.kubectl("get", "np", "scaled", "-o", "jsonpath={.spec.targetNodes}")

    assert printed == "nodepool.compute.coreweave.com/scaled scaled\n"
    assert (scale["spec"]["replicas"], scale["status"]["replicas"], target) == (3, 1, "3")


def test_a_dry_run_changes_nothing(declared: Cluster) -> None:
    given = json.dumps(node_pool("dry"))

    printed = declared.kubectl("apply", "--dry-run=server", "-f", "-", given=given)

    assert printed == "nodepool.compute.coreweave.com/dry created (server dry run)\n"
    assert declared.kubectl("get", "np", "dry", "--ignore-not-found") == ""


def test_a_status_changes_no_spec_and_a_spec_no_status(declared: Cluster) -> None:
    with applied(declared, node_pool("divided")):
        patch = json.dumps({"spec": {"targetNodes": 2}, "status": {"currentNodes": 7}})
        merge = ("--type=merge", "-p", patch)
        declared.kubectl("patch", "np", "divided", *merge)
        declared.kubectl("patch", "np", "divided", "--subresource=status", *merge)
        declared.kubectl(
            "patch", "np", "divided", "--type=merge", "-p", '{"status":{"currentNodes":9}}'
        )
        found = json.loads(declared.kubectl("get", "np", "divided", "-o", "json"))

    assert found["spec"]["targetNodes"] == 2
    assert found["status"] == {"currentNodes": 7, "observedGeneration": 0}
    assert found["metadata"]["generation"] == 2


def edited(cluster: Cluster, folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """`kubectl edit` of a NodePool `edited`, with a sed script for an editor.

    What the editor is shown goes to the file `shown`.
    """
    editor = folder / "editor"
    editor.write_text(f'#!/bin/sh\ncp "$1" {folder}/shown\nexec sed -i "{script}" "$1"\n')
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    command = ["kubectl", "--kubeconfig", str(cluster.kubeconfig), "edit", "nodepool", "edited"]
    # A change that is refused is kept in a temporary file.
    environment = {**os.environ, "KUBE_EDITOR": str(editor), "TMPDIR": str(folder)}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=200, check=False
    )


def test_edit_saves_what_is_right_and_tells_what_is_wrong(
    declared: Cluster, tmp_path: Path
) -> None:
    with applied(declared, node_pool("edited")):
        saved = edited(declared, tmp_path, "s/targetNodes: 1/targetNodes: 4/")
        target = declared.kubectl("get", "np", "edited", "-o", "jsonpath={.spec.targetNodes}")
        refused = edited(declared, tmp_path, f"s/instanceType: .*/instanceType: {A100}/")

    assert (saved.stdout, target) == ("nodepool.compute.coreweave.com/edited edited\n", "4")
    assert refused.returncode == 1
    assert "Edit cancelled, no valid changes were saved." in refused.stderr
    shown = (tmp_path / "shown").read_text()
    assert (
        f'# * spec.instanceType: Invalid value: "{A100}": InstanceType cannot be changed' in shown
    )


def test_wait_returns_once_a_condition_holds(declared: Cluster) -> None:
    with applied(declared, node_pool("awaited")):
        absent = declared.run("wait", "--for=condition=AtTarget", "np/awaited", "--timeout=0s")
        set_status(declared, "awaited", conditions=conditions(*HEALTHY), observedGeneration=1)
        printed = declared.kubectl(
            "wait", "--for=condition=AtTarget", "np/awaited", "--timeout=60s"
        )

    assert absent.returncode == 1
    assert printed == "nodepool.compute.coreweave.com/awaited condition met\n"


def test_watch_prints_a_line_for_each_change(declared: Cluster) -> None:
    with applied(declared, node_pool("watched")):
        columns = "custom-columns=T:.spec.targetNodes,C:.status.currentNodes"
        with declared.watching("np", "watched", "--no-headers", "-o", columns) as seen:
            declared.kubectl("scale", "np", "watched", "--replicas=2")
            set_status(declared, "watched", currentNodes=2)
            wait_until("it has printed both", lambda: len(seen) >= 3, WITHIN_S)

    assert [line.split() for line in seen] == [["1", "<none>"], ["2", "<none>"], ["2", "2"]]
