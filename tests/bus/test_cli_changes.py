"""The commands that change NodePools, against a control plane that `nodepool up` runs."""

import asyncio
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import aclosing
from functools import partial
from pathlib import Path

import pytest

from bus.cli import FULL, H100, MANIFEST, ZONE, Nodepool, commands, environment, running
from bus.harness import PATIENCE_S
from nodepool.cli.app import run
from nodepool.client import Client, Object
from testbed.ports import free_port

H200 = "gd-8xh200ib-i128"
GB200 = "gb200-4x"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a control plane without any NodePool."""
    with running(tmp_path_factory.mktemp("up")) as up:
        yield up.port


@pytest.fixture
def nodepool(port: int, capsys: pytest.CaptureFixture[str]) -> Nodepool:
    """Runs one command."""
    return commands(port, capsys)


@pytest.fixture
def create(nodepool: Nodepool) -> Callable[[str], None]:
    """Creates a NodePool with a target of 0."""

    def created(name: str) -> None:
        done = nodepool("create", "np", name, "--instance-type", H100, "--target", "0")
        assert done == (0, f"{FULL}/{name} created\n", "")

    return created


def target(nodepool: Nodepool, name: str) -> object:
    """The target of a NodePool as it is stored."""
    return json.loads(nodepool("patch", "np", name, "-p", "{}", "-o", "json").out)["spec"][
        "targetNodes"
    ]


def test_a_nodepool_that_exists_is_not_created_once_more(
    nodepool: Nodepool, create: Callable[[str], None], tmp_path: Path
) -> None:
    create("once")
    file = tmp_path / "once.yaml"
    file.write_text(MANIFEST.format(name="once", type=H100, target=5))

    done = nodepool("create", "-f", str(file))

    assert done.code == 1
    assert done.err.endswith("metadata.name: NodePool once exists already (Conflict)\n")
    assert target(nodepool, "once") == 0


def test_a_manifest_is_made_without_a_server() -> None:
    line = f"create np a --instance-type {H100} --target 1 --dry-run=client -o=name"

    assert run(["--url", f"nats://127.0.0.1:{free_port()}", *line.split()]) == 0


def test_a_replaced_nodepool_must_exist(nodepool: Nodepool, tmp_path: Path) -> None:
    file = tmp_path / "none.yaml"
    file.write_text(MANIFEST.format(name="none", type=H100, target=0))

    done = nodepool("replace", "-f", str(file))

    assert done == (1, "", f'error: {file}: nodepool "none" not found in demo/demo\n')


@pytest.mark.parametrize("kind", ["client", "server"])
def test_a_dry_run_says_where_it_was_tried_and_changes_nothing(
    kind: str, nodepool: Nodepool, tmp_path: Path
) -> None:
    file = tmp_path / "dry.yaml"
    file.write_text(MANIFEST.format(name="dry", type=H100, target=0))
    suffix = {"client": "(dry run)", "server": "(server dry run)"}[kind]

    done = nodepool("apply", "-f", str(file), f"--dry-run={kind}")

    assert done == (0, f"{FULL}/dry created {suffix}\n", "")
    assert nodepool("delete", "np", "dry", f"--dry-run={kind}").code == 1


def test_a_change_is_printed_as_the_object_that_was_stored(
    nodepool: Nodepool, create: Callable[[str], None]
) -> None:
    create("shown")

    done = nodepool("scale", "np", "shown", "--replicas=1", "-o=json")
    tried = nodepool("scale", "np", "shown", "--target", "9", "--dry-run", "-o", "json")

    assert json.loads(done.out)["spec"]["targetNodes"] == 1
    assert json.loads(done.out)["metadata"]["generation"] == 2
    assert json.loads(tried.out)["spec"]["targetNodes"] == 9
    assert target(nodepool, "shown") == 1


@pytest.mark.parametrize("tried", ["none", "client", "server"])
def test_a_part_of_a_rack_is_refused_wherever_it_is_tried(nodepool: Nodepool, tried: str) -> None:
    name = f"racks-{tried}"
    nodepool("create", "np", name, "--instance-type", GB200, "--racks", "0")

    scale = partial(nodepool, "scale", "np", name, f"--dry-run={tried}", "-o", "json", "--target")
    refused, scaled = scale("20"), scale("36")

    assert refused == (
        1,
        "",
        f'error: nodepool "{name}": targetNodes: must be a multiple of 18, the Nodes of one rack:'
        " this NodePool has targetRacks (Invalid)\n",
    )
    assert json.loads(scaled.out)["spec"]["targetRacks"] == 2


def test_a_nodepool_is_scaled_from_the_target_that_it_must_have(
    nodepool: Nodepool, create: Callable[[str], None]
) -> None:
    create("current")

    refused = nodepool("scale", "np", "current", "--target", "2", "--current-replicas", "1")
    done = nodepool("scale", "np", "current", "--target", "2", "--current-replicas", "0")

    assert refused == (1, "", 'error: nodepool "current": its target is 0, not 1\n')
    assert done.code == 0


def test_a_nodepool_that_can_never_be_delivered_is_warned_of(nodepool: Nodepool) -> None:
    done = nodepool("create", "np", "typo", "--instance-type", f"{H100}8", "--target", "1")

    assert done.code == 0
    assert done.out == f"{FULL}/typo created\n"
    assert done.err.startswith(
        f"Warning: nodepool/typo is stored but Invalid: instance type {H100}8 is not a known"
        f" instance type; did you mean {H100}? instanceType"
    )
    assert done.err.endswith(
        "instanceType cannot be changed, so delete it with 'nodepool delete nodepool typo' and"
        " create it anew\n"
    )


def test_fields_are_patched_in_both_ways(nodepool: Nodepool, create: Callable[[str], None]) -> None:
    create("patched")
    operations = '[{"op": "replace", "path": "/spec/targetNodes", "value": 3}]'

    merged = nodepool("patch", "np", "patched", "-p", "spec: {targetNodes: 2}")
    same = nodepool("patch", "np", "patched", "-p", "spec: {targetNodes: 2}")
    listed = nodepool("patch", "np", "patched", "--type=json", "-p", operations)
    refused = nodepool("patch", "np", "patched", "-p", f"spec: {{instanceType: {H100}9}}")
    stale = nodepool("patch", "np", "patched", "-p", "metadata: {resourceVersion: '1'}")

    assert merged.out == f"{FULL}/patched patched\n"
    assert same.out == f"{FULL}/patched patched (no change)\n"
    assert listed.out == f"{FULL}/patched patched\n"
    assert refused.err.endswith("spec.instanceType: InstanceType cannot be changed (Invalid)\n")
    assert "is stale: the NodePool was changed since" in stale.err
    assert target(nodepool, "patched") == 3


def test_labels_are_set_kept_overwritten_listed_and_removed(
    nodepool: Nodepool, create: Callable[[str], None]
) -> None:
    create("labelled")
    name = f"{FULL}/labelled"

    assert nodepool("label", "np", "labelled", "team=ml").out == f"{name} labeled\n"
    refused = nodepool("label", "np", "labelled", "team=web")
    assert refused.err == (
        "error: nodepool \"labelled\": 'team' already has a value (ml), and --overwrite is false\n"
    )
    done = nodepool("label", "np", "labelled", "team=web", "--overwrite")
    assert done.out == f"{name} labeled\n"
    assert nodepool("label", "np", "labelled", "--list").out == "team=web\n"
    assert nodepool("label", "np", "-l", "team=web", "team-").out == f"{name} unlabeled\n"
    done = nodepool("annotate", "np", "labelled", "note=by hand", "-o", "json")
    assert json.loads(done.out)["metadata"]["annotations"] == {"note": "by hand"}
    nodepool("annotate", "np", "labelled", "note=two\nlines\x1b[31m", "--overwrite")
    assert nodepool("annotate", "np", "labelled", "--list").out == "note=two\\nlines^[[31m\n"


def test_many_changes_at_once_lose_no_update(
    port: int, nodepool: Nodepool, create: Callable[[str], None]
) -> None:
    create("busy")
    script = [sys.executable, "-m", "nodepool.cli", "label", "np", "busy"]
    writers = [
        subprocess.Popen(
            [*script, f"k{number}=v"], env=environment(port), stdout=subprocess.DEVNULL
        )
        for number in range(4)
    ]

    assert [writer.wait(60) for writer in writers] == [0] * 4
    assert nodepool("label", "np", "busy", "--list").out == "k0=v\nk1=v\nk2=v\nk3=v\n"


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a shell script the editor; it gets the file as its first argument."""

    def use(script: str) -> None:
        program = tmp_path / "editor"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("KUBE_EDITOR", str(program))
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    return use


def test_what_is_saved_in_the_editor_is_stored(
    nodepool: Nodepool, create: Callable[[str], None], editor: Callable[[str], None], tmp_path: Path
) -> None:
    create("edited")
    editor('sed -i.old "s/targetNodes: .*/targetNodes: 4/" "$1" && rm "$1.old"')

    assert nodepool("edit", "np", "edited") == (0, f"{FULL}/edited edited\n", "")
    assert target(nodepool, "edited") == 4
    assert list(tmp_path.glob("*.yaml")) == []

    editor("true")
    assert nodepool("edit", "np", "edited") == (0, "", "Edit cancelled, no changes made\n")


def test_a_refused_edit_is_opened_again_with_the_reason_and_kept_when_given_up(
    nodepool: Nodepool,
    create: Callable[[str], None],
    editor: Callable[[str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create("refused")
    editor(
        'if grep "# \\* .*targetNodes" "$1" > reason; then :; else'
        ' sed -i.old "s/targetNodes: .*/targetNodes: -4/" "$1"; fi'
    )
    monkeypatch.chdir(tmp_path)

    done = nodepool("edit", "np", "refused")

    (kept,) = tmp_path.glob("*.yaml")
    assert done.code == 1
    assert done.err.endswith(
        f"error: nothing was changed after the refusal; your edit is kept in {kept}\n"
    )
    assert "targetNodes: -4" in kept.read_text()
    assert "input should be greater than or equal to 0" in (tmp_path / "reason").read_text()
    assert target(nodepool, "refused") == 0


@pytest.mark.parametrize(
    ("meanwhile", "code"), [("--target 7", 1), ("--target 0", 0)], ids=["same field", "no change"]
)
def test_an_edit_never_undoes_what_another_changed_meanwhile(
    meanwhile: str,
    code: int,
    port: int,
    nodepool: Nodepool,
    create: Callable[[str], None],
    editor: Callable[[str], None],
) -> None:
    name = f"both-{code}"
    create(name)
    other = f"{sys.executable} -m nodepool.cli --url nats://127.0.0.1:{port}"
    editor(
        f"PYTHONPATH={os.pathsep.join(sys.path)} {other} scale np {name} {meanwhile} > /dev/null\n"
        'sed -i.old "s/targetNodes: .*/targetNodes: 6/" "$1"'
    )

    done = nodepool("edit", "np", name)

    assert done.code == code
    assert target(nodepool, name) == (7 if code else 6)


def test_a_diff_shows_what_apply_would_change_and_exits_with_1(
    nodepool: Nodepool, create: Callable[[str], None], tmp_path: Path
) -> None:
    create("compared")
    file = tmp_path / "compared.yaml"
    file.write_text(MANIFEST.format(name="compared", type=H100, target=2))

    done = nodepool("diff", "-f", str(file))
    nodepool("apply", "-f", str(file))
    same = nodepool("diff", "-f", str(file))
    file.write_text(MANIFEST.format(name="compared", type="other", target=2))
    refused = nodepool("diff", "-f", str(file))

    assert done.code == 1
    assert done.out.startswith(f"--- LIVE/{FULL}/compared\n+++ MERGED/{FULL}/compared\n")
    assert [line for line in done.out.splitlines()[2:] if line[0] in "+-"] == [
        "-  targetNodes: 0",
        "+  targetNodes: 2",
    ]
    assert same == (0, "", "")
    assert refused.code == 2
    assert refused.err.endswith("InstanceType cannot be changed (Invalid)\n")


async def limit_listed(port: int, key: str) -> None:
    """Waits until the read model has this quota."""
    async with (
        asyncio.timeout(PATIENCE_S),
        Client(f"nats://127.0.0.1:{port}") as client,
        aclosing(client.quotas.watch()) as changes,
    ):
        async for change in changes:
            if isinstance(change, Object) and change.key == key:
                return


def test_a_limit_is_unset_once(port: int, nodepool: Nodepool) -> None:
    key = f"{ZONE}.{H200}"
    nodepool("set", "quota", H200, "5", "--zone", ZONE)
    asyncio.run(limit_listed(port, key))

    tried = nodepool("delete", "quota", H200, "--dry-run=client")
    done = nodepool("delete", "quota", key)
    again = nodepool("delete", "quota", H200)
    ignored = nodepool("delete", "quota", H200, "--ignore-not-found")

    assert tried == (0, f'quota "{key}" deleted (dry run)\n', "")
    assert done == (0, f'quota "{key}" deleted\n', "")
    assert (again.code, again.out) == (1, "")
    assert again.err.startswith(f'error: quota "{key}": ')
    assert ignored == (0, "", "")


def test_nodepools_are_deleted_by_label_and_by_field(
    nodepool: Nodepool, create: Callable[[str], None]
) -> None:
    for name in ("gone-a", "gone-b"):
        create(name)
    nodepool("label", "np", "gone-a", "gone=yes")
    nodepool("wait", "np", "gone-a", "gone-b", "--for", "condition=AtTarget")

    labelled = nodepool("delete", "np", "-l", "gone=yes", "-o=name")
    named = nodepool("delete", "np", "--field-selector", "metadata.name=gone-b", "--wait=false")
    nothing = nodepool("delete", "np", "-l", "gone=yes")

    assert labelled == (0, f"{FULL}/gone-a\n", "")
    assert named == (0, f'{FULL} "gone-b" deleted\n', "")
    assert nothing == (0, "", "No resources found\n")
