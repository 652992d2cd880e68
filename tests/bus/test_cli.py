"""The `nodepool` command against a control plane that `nodepool up` runs."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bus.cli import (
    A100,
    FULL,
    H100,
    MANIFEST,
    ZONE,
    Nodepool,
    Up,
    commands,
    environment,
    lines_until,
    running,
    started,
)
from nodepool.cli.app import run
from nodepool.cli.names import EVENT, KINDS, POD, PREEMPTION
from testbed.ports import free_port

L40 = "gd-8xl40-i128"
EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Everything on this machine, with the example NodePools, until Ctrl-C."""
    with running(tmp_path_factory.mktemp("up"), "--examples", str(EXAMPLES)) as up:
        yield up


@pytest.fixture
def nodepool(up: Up, capsys: pytest.CaptureFixture[str]) -> Nodepool:
    """Runs one command."""
    return commands(up.port, capsys)


@pytest.fixture
def manifest(tmp_path: Path) -> Callable[..., str]:
    """Writes a manifest and returns its file."""

    def write(name: str, target: int = 1, type: str = H100) -> str:
        path = tmp_path / f"{name}.yaml"
        path.write_text(MANIFEST.format(name=name, type=type, target=target))
        return str(path)

    return write


def test_up_shows_the_example_nodepools_at_their_targets(up: Up) -> None:
    rows = [line.split() for line in up.printed if line.startswith(("batch", "training"))]

    assert f"the bus listens on nats://127.0.0.1:{up.port}; data and logs are in" in up.printed[0]
    assert [row[:8] for row in rows] == [
        ["batch", A100, "2", "0", "2", "Valid", "Sufficient", "Under"],
        ["training", H100, "8", "0", "8", "Valid", "Sufficient", "Under"],
    ]


def test_a_nodepool_is_applied_scaled_awaited_and_deleted(
    nodepool: Nodepool, manifest: Callable[..., str]
) -> None:
    file = manifest("life", target=1)

    assert nodepool("apply", "-f", file) == (0, f"{FULL}/life created\n", "")
    assert nodepool("apply", "-f", file, "--dry-run").out.endswith("unchanged (server dry run)\n")
    assert nodepool("scale", "np", "life", "--target", "2") == (0, f"{FULL}/life scaled\n", "")
    arguments = ("wait", "np/life", "--for", "condition=AtTarget", "--timeout", "60s")
    assert nodepool(*arguments) == (0, f"{FULL}/life condition met\n", "")
    assert nodepool("get", "np", "life", "-o", "name").out == f"{FULL}/life\n"
    assert nodepool("delete", "-f", file) == (0, f'{FULL} "life" deleted\n', "")
    assert nodepool("get", "np", "life").code == 1


def test_a_refused_manifest_is_reported_with_its_place_and_the_others_are_applied(
    nodepool: Nodepool, manifest: Callable[..., str]
) -> None:
    good, bad = manifest("good", target=0), manifest("Bad", target=0)

    done = nodepool("apply", "-f", bad, "-f", good)

    assert done.code == 1
    assert done.out == f"{FULL}/good created\n"
    assert done.err.startswith(f'error: {bad}: nodepool "Bad": metadata.name: ')


def test_what_does_not_exist_is_an_error_for_each_name(nodepool: Nodepool) -> None:
    done = nodepool("get", "np", "nosuch", "training", "missing", "--no-headers")

    assert done.code == 1
    assert done.out.startswith("training   ")
    assert done.err == (
        'error: nodepool "nosuch" not found in demo/demo\n'
        'error: nodepool "missing" not found in demo/demo\n'
    )
    close = 'error: nodepool "trainin" not found in demo/demo; did you mean training?\n'
    assert nodepool("get", "np", "trainin") == (1, "", close)
    assert nodepool("get", "np", "nosuch", "--ignore-not-found") == (0, "", "")
    assert nodepool("get", "np", "nosuch", "-o", "json").out == ""
    assert nodepool("delete", "np", "nosuch").code == 1
    assert nodepool("delete", "np", "nosuch", "--ignore-not-found") == (0, "", "")
    assert nodepool("get", "np", "-l", "a=b") == (0, "", "No resources found\n")


def test_objects_are_printed_as_json_one_as_itself_and_several_as_a_list(
    nodepool: Nodepool,
) -> None:
    one = json.loads(nodepool("get", "np", "training", "-o", "json").out)
    several = json.loads(nodepool("get", "np", "training", "batch", "-o", "json").out)

    assert one["kind"] == "NodePool"
    assert several["kind"] == "List"
    assert [item["metadata"]["name"] for item in several["items"]] == ["training", "batch"]


def test_nodes_are_selected_by_label(nodepool: Nodepool) -> None:
    selector = "compute.coreweave.com/node-pool=batch"

    rows = nodepool("get", "nodes", "-l", selector, "--no-headers").out.splitlines()

    assert [row.split()[1:4] for row in rows] == [["Ready", "batch", A100]] * 2


def test_quotas_and_capacity_are_found_by_a_part_of_their_name(nodepool: Nodepool) -> None:
    quota = nodepool("get", "quotas", H100, "--no-headers").out.split()
    capacity = nodepool("get", "capacity", ZONE, "-o", "name").out.splitlines()

    assert quota[:3] == [ZONE, H100, "64"]
    assert f"capacity/{ZONE}.{A100}" in capacity


def test_a_nodepool_says_what_it_waits_for_and_what_would_help(
    nodepool: Nodepool, manifest: Callable[..., str]
) -> None:
    nodepool("apply", "-f", manifest("waiting", target=900))
    nodepool("wait", "np", "waiting", "--for", "condition=Quota=False", "--timeout", "60s")

    text = nodepool("explain", "nodepool", "waiting")
    document = json.loads(nodepool("explain", "np/waiting", "-o", "json").out)
    missing = nodepool("explain", "np", "waitin")
    nodepool("delete", "np", "waiting")

    sentence, _, first, *_ = text.out.splitlines()
    assert (text.code, text.err) == (0, "")
    assert sentence.startswith(f"NodePool waiting wants 900 Nodes of {H100} in {ZONE} and has 0; ")
    assert first.startswith("1. Quota is Over, False since ")
    assert document["sentence"] == sentence
    assert "demo/training 8" in document["causes"][0]["details"][2]
    assert document["causes"][0]["proofs"][0]["about"] == "condition Quota"
    assert missing.err == (
        'error: nodepool "waitin" not found in demo/demo; did you mean waiting?\n'
    )


def test_what_a_node_of_another_cluster_runs_is_known_to_what_would_help(
    nodepool: Nodepool, manifest: Callable[..., str]
) -> None:
    # given a NodePool of another cluster that holds all quota of a type, with a Node at work
    there = ("--cluster", "near")
    nodepool("register", "cluster", "near", "--zone", ZONE)
    nodepool("set", "quota", L40, "1", *there)
    nodepool("fleet", "add", ZONE, L40, "1")
    nodepool("apply", "-f", manifest("far", 1, L40), *there)
    nodepool("wait", "np", "far", "--for", "condition=AtTarget", "--timeout", "60s", *there)
    node = nodepool("get", "nodes", "-o", "name", *there).out.strip().removeprefix("node/")
    nodepool("fleet", "run-pod", f"{ZONE}/{node}", "work")
    nodepool("wait", "node", node, "--for", "condition=CWActive", "--timeout", "60s", *there)

    # when a NodePool wants that quota
    nodepool("apply", "-f", manifest("short", 1, L40))
    nodepool("wait", "np", "short", "--for", "condition=Quota=False", "--timeout", "60s")
    explained = json.loads(nodepool("explain", "np", "short", "-o", "json").out)
    nodepool("delete", "np", "short")
    nodepool("fleet", "stop-pod", f"{ZONE}/{node}", "work")
    nodepool("delete", "np", "far", *there)

    # then it says that work has to end first
    assert explained["causes"][0]["helps"][-1] == (
        "scale near/far down to 0: each of its Nodes counts until it is idle and has left"
    )


def test_a_nodepool_is_described_with_its_events(nodepool: Nodepool) -> None:
    done = nodepool("describe", "np", "training", "nosuch")

    assert done.code == 1
    assert done.out.startswith("Name:         training\nNamespace:    \n")
    assert "\nEvents:\n  Type    Reason" in done.out
    assert "CWNodePoolCreated" in done.out
    assert done.err == 'error: nodepool "nosuch" not found in demo/demo\n'


def test_events_are_those_of_one_object_and_of_one_type(nodepool: Nodepool) -> None:
    done = nodepool("events", "--for", "np/training", "--types", "Normal")

    assert done.code == 0
    header, first, *_ = done.out.splitlines()
    assert re.split(r"\s{2,}", header) == ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert re.split(r"\s{2,}", first)[1:] == [
        "Normal",
        "CWNodePoolCreated",
        "NodePool/training",
        "NodePool training is created",
    ]
    assert nodepool("events", "--for", "np/nosuch") == (0, "", "No events found\n")


def test_a_spot_node_is_preempted_once(nodepool: Nodepool) -> None:
    selector = "compute.coreweave.com/node-pool=batch"
    node = nodepool("get", "nodes", "-l", selector, "-o", "name").out.splitlines()[0]

    assert nodepool("preempt", node) == (0, f"{node} preemption pending\n", "")
    assert nodepool("preempt", node).out == f"{node} unchanged\n"
    missing = nodepool("preempt", "node", "nosuch")
    assert missing == (1, "", 'error: node "nosuch": not found in demo/demo\n')
    listed = nodepool("get", "preemptions", "--since", "168h", "--no-headers").out
    name = node.removeprefix("node/")
    assert re.split(r"\s{2,}", listed)[:4] == [name, "batch", "Pending", "Requested"]
    mixed = nodepool("get", "nodes", "--since", "1h")
    assert mixed.err.startswith("error: --since: nodes are those of now; leave it out")


def test_the_documented_watch_finds_a_preemption(nodepool: Nodepool, up: Up) -> None:
    selector = "compute.coreweave.com/node-pool=batch"
    for node in nodepool("get", "nodes", "-l", selector, "-o", "name").out.splitlines()[:1]:
        nodepool("preempt", node)

    with started(up.port, "events", "--types=Warning", "--watch") as watch:
        found = subprocess.run(
            ["grep", "-m1", "Reason: Preemption pending"],
            stdin=watch.stdout,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        watch.kill()

    assert "Preemption pending" in found.stdout


def test_machines_are_reclaimed_and_returned(nodepool: Nodepool) -> None:
    before = nodepool("get", "capacity", f"{ZONE}.{H100}", "-o", "jsonpath={.free}").out

    reclaimed = nodepool("reclaim", ZONE, H100, "1")
    too_many = nodepool("reclaim", ZONE, H100, "5000")
    returned = nodepool("return", ZONE, H100, "1")
    again = nodepool("return", ZONE, H100, "1")

    assert int(before) > 1
    assert reclaimed == (0, f"capacity/{ZONE}.{H100} 1 reclaimed\n", "")
    assert too_many.err.startswith("error: count: at most ")
    assert returned == (0, f"capacity/{ZONE}.{H100} 1 returned\n", "")
    assert again.err.startswith("error: count: at most 0 machines")


def test_a_node_is_cordoned_drained_and_rebooted(nodepool: Nodepool) -> None:
    selector = "compute.coreweave.com/node-pool=training"
    node = nodepool("get", "nodes", "-l", selector, "-o", "name").out.splitlines()[0]
    name = node.removeprefix("node/")

    assert nodepool("cordon", name, "--reason", "a fan is loud") == (0, f"{node} cordoned\n", "")
    shown = nodepool("get", node, "--no-headers").out
    assert re.split(r"\s{2,}", shown)[:2] == [name, "Ready,SchedulingDisabled"]
    assert "cordonReason: a fan is loud" in nodepool("describe", node).out
    drained = nodepool("drain", node, "--timeout", "30s")
    assert drained[:2] == (0, f"{node} cordoned\n{node} drained\n")
    # A machine that answers late is named.
    assert drained.err in ("", f"{node} waits for its machine to answer\n")
    assert nodepool("reboot", "node", name) == (0, f"{node} reboot pending\n", "")
    nodepool("wait", node, "--for", "jsonpath={.status.reboots}=1", "--timeout", "30s")
    assert nodepool("uncordon", name) == (0, f"{node} uncordoned\n", "")
    assert nodepool("uncordon", name).out == f"{node} unchanged\n"
    nodepool("wait", node, "--for", "jsonpath={.status.phase}=production", "--timeout", "30s")
    refused = nodepool("cordon", name, "--reason", "a,b")
    assert refused.code == 1
    assert refused.err.startswith(f'error: node "{name}": reason: must have no commas')


def test_a_drain_that_is_taken_back_ends(nodepool: Nodepool, up: Up) -> None:
    selector = "compute.coreweave.com/node-pool=training"
    node = nodepool("get", "nodes", "-l", selector, "-o", "name").out.splitlines()[0]
    place = f"{ZONE}/{node.removeprefix('node/')}"
    nodepool("fleet", "run-pod", place, "blocking")

    with started(up.port, "drain", node, stderr=subprocess.PIPE) as drain:
        try:
            lines_until(drain, "cordoned")
            assert drain.stderr is not None
            waits = drain.stderr.readline()
            nodepool("uncordon", node)
            code = drain.wait(timeout=30)
        finally:
            drain.kill()

    nodepool("fleet", "stop-pod", place, "blocking")
    assert waits == f"{node} waits for what is running: blocking\n"
    assert code == 1


def test_a_node_is_locked_and_unlocked(nodepool: Nodepool) -> None:
    selector = "compute.coreweave.com/node-pool=training"
    node = nodepool("get", "nodes", "-l", selector, "-o", "name").out.splitlines()[0]
    place = f"{ZONE}/{node.removeprefix('node/')}"

    assert nodepool("lock", node, "--job", "42") == (0, f"{node} locked\n", "")
    unlimited = nodepool("lock", node, "--job", "42", "--timeout", "0s")
    assert unlimited == (0, f"{node} locked\n", "")
    taken = nodepool("lock", node, "--job", "43")
    assert (taken.code, taken.out) == (1, "")
    assert taken.err.endswith("is locked by Slurm job 42 (Conflict)\n")
    assert nodepool("unlock", node, "--job", "42").out == f"{node} unlocked\n"
    assert nodepool("unlock", node, "--job", "42").out == f"{node} unchanged\n"
    assert nodepool("lock", "node", "nosuch", "--job", "42").code == 1

    nodepool("fleet", "run-pod", place, "long", "--grace", "600")
    late = nodepool("lock", node, "--job", "44", "--timeout", "1s")
    assert late.code == 3
    assert late.err.endswith("it is pending\n")
    assert nodepool("unlock", node, "--job", "44").out == f"{node} unlocked\n"
    nodepool("fleet", "stop-pod", place, "long")


def test_zones_are_ranked_by_where_capacity_is_likely(nodepool: Nodepool) -> None:
    one = nodepool("find", "capacity", f"{H100}=2")
    several = nodepool("find", "capacity", f"{H100}=2", f"{A100}=1000", "--no-headers")
    first = nodepool("find", "capacity", f"{H100}=2", "-o", "jsonpath={.items[0]}")
    columns = "custom-columns=ZONE:.metadata.name,TAG:.status.availability"

    header, best, *others = [re.split(r"\s{2,}", line) for line in one.out.splitlines()]
    assert header == ["ZONE", "AVAILABILITY", "CLUSTER"]
    assert best == [ZONE, "Likely available", "yes"]
    assert others[0] == ["RNO2A", "Not available", "no"]
    assert others[-1] == ["US-WEST-10A", "SKU unavailable", "no"]
    assert re.split(r"\s{2,}", several.out.splitlines()[0]) == [
        *(ZONE, "Not available", "yes"),
        *("Likely available", "Not available"),
    ]
    assert json.loads(first.out) == {
        "kind": "ZoneAvailability",
        "metadata": {"name": ZONE},
        "spec": {"selections": [{"instanceType": H100, "count": 2}]},
        "status": {
            "availability": "Likely available",
            "hasCluster": True,
            "tags": ["Likely available"],
        },
    }
    custom = nodepool("find", "capacity", f"{H100}=2", "-o", columns).out.splitlines()
    assert [re.split(r"\s{2,}", line) for line in custom[:2]] == [
        ["ZONE", "TAG"],
        [ZONE, "Likely available"],
    ]
    assert nodepool("find", "capacity", f"{H100}=2", "-o", "name").out.startswith(f"zone/{ZONE}\n")


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (
            ["gd-8xh100=2"],
            1,
            "selections[0].instanceType: gd-8xh100 is not a known instance type;"
            f" did you mean {H100}? (Invalid)",
        ),
        (
            [f"{H100}=0"],
            1,
            "selections[0].count: input should be greater than or equal to 1 (Invalid)",
        ),
        (
            [f"{H100}={count}" for count in range(1, 18)],
            1,
            "selections: must have from 1 to 16 items, not 17 (Invalid)",
        ),
        (
            [f"{H100}=two"],
            2,
            f"TYPE=COUNT: '{H100}=two' must be an instance type and a number of Nodes, such as"
            " gd-8xh100ib-i128=16 (see nodepool find capacity --help)",
        ),
    ],
)
def test_a_selection_that_cannot_be_found_is_an_error(
    nodepool: Nodepool, words: list[str], code: int, error: str
) -> None:
    assert nodepool("find", "capacity", *words) == (code, "", f"error: {error}\n")


def test_the_best_zone_with_a_cluster_gets_a_spot_nodepool(nodepool: Nodepool) -> None:
    words = ("find", "capacity", f"{H100}=1", "--create", "found")
    spec = {"instanceType": H100, "targetNodes": 1, "computeClass": "spot"}

    tried = nodepool(*words, "--dry-run", "-o", "json")
    missing = nodepool("get", "np", "found")
    created = nodepool(*words)
    stored = nodepool("get", "np", "found", "-o", "json")
    again = nodepool(*words)
    nodepool("delete", "np", "found")

    manifest = json.loads(tried.out)
    assert (manifest["metadata"]["name"], spec.items() <= manifest["spec"].items()) == (
        *("found", True),
    )
    assert missing.code == 1
    assert created[:2] == (0, f"{FULL}/found created\n")
    assert created.err.startswith(f"{ZONE}, cluster demo: L")
    assert spec.items() <= json.loads(stored.out)["spec"].items()
    assert (again.code, again.out) == (1, "")


def test_no_nodepool_is_created_where_no_zone_has_the_nodes(nodepool: Nodepool) -> None:
    done = nodepool("find", "capacity", f"{H100}=100000", "--create", "found")

    problem = "no zone has 100000 x gd-8xh100ib-i128 now; ask again later, or for fewer Nodes"
    assert done == (1, "", f"error: {problem}\n")


def test_a_wait_that_takes_too_long_exits_with_3(nodepool: Nodepool) -> None:
    done = nodepool("wait", "np", "training", "--for", "condition=Quota=False", "--timeout", "0")

    assert done == (
        3,
        "",
        "error: timed out waiting for Quota=False on nodepool/training; "
        "it is True (Under): NodePool is within instance type quota.\n",
    )


def test_quotas_are_set_in_the_zone_of_the_cluster(nodepool: Nodepool) -> None:
    registered = nodepool("register", "cluster", "second", "--zone", ZONE)
    done = nodepool("set", "quota", "--cluster", "second", "cd-gp-i64-erapids", "2001")
    unknown = nodepool("set", "quota", "--cluster", "third", A100, "32")

    assert registered.out == "cluster/second created\n"
    assert done.out == f"quota/{ZONE}.cd-gp-i64-erapids configured\n"
    assert unknown.code == 1
    assert unknown.err == "error: --zone: cluster demo/third is not registered; name a zone\n"


def test_the_data_centre_is_operated(nodepool: Nodepool) -> None:
    selector = "compute.coreweave.com/node-pool=training"
    node = nodepool("get", "nodes", "-l", selector, "-o", "name").out.splitlines()[0]
    machine = node.removeprefix("node/")
    place = f"{ZONE}/{machine}"

    added = nodepool("fleet", "add", ZONE, A100, "501", "--boot-seconds", "1")
    assert added == (0, f"zone/{ZONE} 501 {A100} added\n", "")
    assert nodepool("fleet", "run-pod", place, "p", "--graceful").out == "pod/p created\n"
    assert nodepool("fleet", "stop-pod", place, "p").out == "pod/p deleted\n"
    assert nodepool("fleet", "break", place, "--fault", "boot").out == f"machine/{machine} broken\n"
    assert nodepool("fleet", "stop-pod", place, "p").code == 1
    created = nodepool("fleet", "create-pod", "training", "w", "--gpus", "8", "--toleration", "*")
    assert created.out == "pod/w created\n"
    assert nodepool("fleet", "create-pod", "training", "w").code == 1
    assert nodepool("fleet", "delete-pod", "training", "w", "--grace", "0").out == "pod/w deleted\n"
    refused = nodepool("fleet", "add", ZONE, A100, "1", "--label", "rack=r1")
    assert refused.err.startswith("error: labels[rack]: is not a topology label")


def test_a_watch_prints_the_list_and_each_change_until_ctrl_c(
    up: Up, nodepool: Nodepool, manifest: Callable[..., str]
) -> None:
    nodepool("apply", "-f", manifest("watched", target=0))
    with started(up.port, "get", "np", "watched", "-w") as process:
        listed = lines_until(process, "watched")
        nodepool("scale", "np", "watched", "--target", "1")
        lines_until(process, "watched")
        process.send_signal(signal.SIGINT)
        code = process.wait(30)

    assert listed[0].startswith("NAME      INSTANCE TYPE")
    assert listed[1].split()[:3] == ["watched", H100, "0"]
    assert code == 130


def test_an_organisation_or_cluster_that_is_not_known_is_an_error(nodepool: Nodepool) -> None:
    nodepool("register", "cluster", "empty", "--zone", ZONE)

    organisation = nodepool("get", "np", "--org", "demmo")
    cluster = nodepool("get", "nodes", "--cluster", "emty", "-o", "json")
    events = nodepool("events", "--cluster", "emty")

    assert nodepool("get", "np", "--cluster", "empty") == (0, "", "No resources found\n")
    assert organisation == (
        1,
        "",
        "error: organisation 'demmo' has no clusters; did you mean demo?\n",
    )
    unknown = "error: cluster 'emty' of 'demo' is not registered; did you mean empty?\n"
    assert (cluster, events) == ((1, "", unknown), (1, "", unknown))


def test_organisations_and_their_clusters_are_completed(up: Up, nodepool: Nodepool) -> None:
    nodepool("register", "cluster", "spare", "--zone", ZONE)
    nodepool("register", "cluster", "theirs", "--zone", ZONE, "--org", "other")
    # Reading waits for what was accepted; completion, which has to be quick, does not.
    assert nodepool("get", "cluster", "theirs", "--org", "other").code == 0
    assert nodepool("get", "cluster", "spare").code == 0

    def offered(*words: str) -> list[str]:
        url = f"nats://127.0.0.1:{up.port}"
        return nodepool("__complete", "--", "--url", url, *words).out.split()

    assert offered("get", "np", "--org", "") == ["demo", "other"]
    assert offered("get", "np", "--cluster=sp") == ["--cluster=spare"]
    assert offered("--org", "other", "--cluster", "") == ["theirs"]


@pytest.mark.parametrize(
    "line",
    [
        "delete np --all",
        "delete np a --ignore-not-found",
        "get np a --ignore-not-found",
        "get all",
        "get no,cap",
        "events -w",
        "get events -w",
        "wait np --all --for condition=AtTarget",
        "wait no -l a=b --for jsonpath={.spec}",
        "label np -l a=b c=d",
        "wait np a --for delete",
        "wait np a --for create --timeout 1s",
        "wait np --all --for delete",
        "rollout status np a",
        "describe nodes",
    ],
)
def test_no_verb_takes_an_unknown_cluster_for_an_empty_one(line: str, nodepool: Nodepool) -> None:
    done = nodepool(*line.split(), "--cluster", "typo")

    assert (done.code, done.out) == (1, "")
    assert "typo" in done.err


def test_the_limits_of_an_unknown_organisation_are_not_deleted(nodepool: Nodepool) -> None:
    done = nodepool("delete", "quota", "--all", "--org", "typo")

    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: organisation 'typo' has no clusters; there are: ")


def test_objects_of_several_types_are_listed_selected_and_sorted(nodepool: Nodepool) -> None:
    several = nodepool("get", "np,qt", "--no-headers").out.split("\n\n")
    chosen = nodepool("get", "np", "--field-selector", f"spec.instanceType={A100}", "-o", "name")
    ordered = nodepool("get", "np", "batch", "training", "--sort-by", ".spec.targetNodes")
    everywhere = nodepool("get", "np", "-A", "--no-headers").out.splitlines()
    names = nodepool("get", "np", "batch", "-o", "jsonpath={.metadata.name}{.spec.targetNodes}")
    types = nodepool("get", "instancetypes", H100, "-o", "custom-columns=N:.metadata.name")

    assert [part.split()[0] for part in several] == ["nodepool/batch", ZONE]
    assert chosen.out == f"{FULL}/batch\n"
    assert [line.split()[0] for line in ordered.out.splitlines()[1:]] == ["batch", "training"]
    assert everywhere[0].split()[:3] == ["demo", "demo", "batch"]
    assert names.out == "batch2"
    assert types.out.splitlines() == ["N", H100]


def test_quotas_and_zones_are_described_without_events(nodepool: Nodepool) -> None:
    quota = nodepool("describe", "quota", H100).out
    zone = nodepool("describe", "zone", ZONE).out

    assert quota.startswith(f"Name:              {ZONE}.{H100}\n")
    assert "Limit:             64\n" in quota
    assert zone.startswith(f"Name:         {ZONE}\n")
    assert "Events:" not in quota + zone


def test_events_are_printed_as_objects_too(nodepool: Nodepool) -> None:
    listed = json.loads(nodepool("events", "--for", "np/training", "-o", "json").out)
    none = nodepool("get", "events", "--field-selector", "type=Nosuch")

    first = listed["items"][0]
    assert (first["kind"], first["reason"]) == ("Event", "CWNodePoolCreated")
    assert first["involvedObject"] == {"kind": "NodePool", "name": "training"}
    assert none == (0, "", "No resources found\n")


def test_a_nodepool_made_anew_is_described_without_the_events_of_the_earlier_one(
    nodepool: Nodepool, manifest: Callable[..., str]
) -> None:
    file = manifest("again", target=0)
    nodepool("apply", "-f", file)
    nodepool("delete", "-f", file)
    nodepool("apply", "-f", file)
    nodepool("wait", "np/again", "--for", "create")

    described = nodepool("describe", "np", "again").out
    all_events = nodepool("events", "--for", "np/again").out

    assert described.count("CWNodePoolCreated") == 1
    assert "CWNodePoolDeleted" not in described
    assert "CWNodePoolDeleted" in all_events


def test_states_of_nodes_and_values_of_nodepools_are_awaited(nodepool: Nodepool) -> None:
    selector = "compute.coreweave.com/node-pool=batch"

    nodes = nodepool("wait", "no", "-l", selector, "--for", "condition=CWRegistered")
    value = nodepool("wait", "np/batch", "--for", "jsonpath={.spec.targetNodes}=2")
    created = nodepool("wait", "np/batch", "--for", "create")
    none = nodepool("wait", "np", "-l", "no=such", "--for", "condition=AtTarget")
    never = nodepool("wait", "np/nosuch", "--for", "create", "--timeout", "0")

    assert nodes.code == 0
    assert len(nodes.out.splitlines()) == 2
    assert value == created == (0, f"{FULL}/batch condition met\n", "")
    assert none == (1, "", "error: no resources found that could be waited for\n")
    assert never == (3, "", "error: timed out waiting for nodepool/nosuch to be created\n")


def test_what_manifests_name_is_described_awaited_and_followed(
    nodepool: Nodepool, manifest: Callable[..., str]
) -> None:
    path = manifest("in-a-file", target=0)
    nodepool("apply", "-f", path)

    awaited = nodepool("wait", "-f", path, "--for", "condition=AtTarget")
    described = nodepool("describe", "-f", path)
    followed = nodepool("rollout", "status", "-f", path)

    assert awaited == (0, f"{FULL}/in-a-file condition met\n", "")
    assert (described.code, described.out.splitlines()[0]) == (0, "Name:         in-a-file")
    assert followed == (0, 'nodepool "in-a-file" successfully rolled out\n', "")


def test_a_rollout_is_followed_to_its_end(nodepool: Nodepool, manifest: Callable[..., str]) -> None:
    nodepool("apply", "-f", manifest("rolled", target=1))
    nodepool("apply", "-f", manifest("wrong", target=1, type="gd-8xh100"))

    rolled = nodepool("rollout", "status", "np/rolled", "--timeout", "60s")
    wrong = nodepool("rollout", "status", "np/wrong")
    missing = nodepool("rollout", "status", "np/nosuch")
    nodepool("scale", "np", "rolled", "--target", "1000")
    blocked = nodepool("rollout", "status", "np/rolled", "--timeout", "2s")

    assert (rolled.code, rolled.err) == (0, "")
    assert rolled.out.splitlines()[-1] == 'nodepool "rolled" successfully rolled out'
    assert wrong.code == 1
    assert wrong.err.startswith('error: nodepool "wrong" is invalid: ')
    assert missing == (1, "", 'error: nodepool "nosuch" not found in demo/demo\n')
    assert blocked.code == 3
    assert "1 of 1000 Nodes; Quota is Over: targetNodes 1000 exceeds quota" in blocked.out
    assert blocked.err.startswith(
        "error: timed out waiting for nodepool/rolled: 1 of 1000 Nodes; Quota is Over: targetNodes"
    )


def test_the_present_state_is_read_even_with_no_time_to_wait(nodepool: Nodepool) -> None:
    nodepool("wait", "np", "batch", "--for", "condition=AtTarget", "--timeout", "60s")

    met = nodepool("wait", "np", "batch", "--for", "condition=AtTarget", "--timeout", "0")
    unmet = nodepool("wait", "np", "batch", "--for", "condition=AtTarget=False", "--timeout", "0")

    assert met == (0, f"{FULL}/batch condition met\n", "")
    assert unmet.code == 3
    assert unmet.err.startswith("error: timed out waiting for AtTarget=False on nodepool/batch; it")


READING = (
    *(f"get {kind.plural}" for kind in KINDS if kind not in (EVENT, PREEMPTION, POD)),
    "wait np batch --for condition=AtTarget",
    "rollout status np/batch",
    "__complete -- get np b",
)
"""Commands that read."""
END = "the end of a command"


def test_a_verb_that_reads_loads_no_models_of_messages(up: Up) -> None:
    # What a command loads stays loaded, so the first that loads a model is named.
    script = (
        "import sys\n"
        "from nodepool.cli.app import run\n"
        f"for line in {READING}:\n"
        "    assert run(line.split()) == 0, line\n"
        "    names = {'pydantic', 'yaml', 'nats.js', 'nodepool.contract.events'}\n"
        "    assert not names & set(sys.modules), (line, names & set(sys.modules))\n"
        f"    print({END!r})\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment(up.port),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    *printed, rest = done.stdout.split(f"{END}\n")
    assert all(printed), dict(zip(READING, printed, strict=True))
    assert rest == ""


def test_without_a_server_the_exit_code_is_4(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()

    assert run(["get", "np", "--url", f"nats://127.0.0.1:{port}"]) == 4
    assert capsys.readouterr().err == (
        f"error: no NATS server responds at nats://127.0.0.1:{port} (Connection refused): "
        "start one with 'nodepool up', or set NODEPOOL_URL\n"
    )
