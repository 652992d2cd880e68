"""Whatever the state of a Node: nothing is missing in the end, and what is foreign stays."""

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.actions import Attempt, Delete, Drain, Evict, RecordEvent, Report, Send
from agent.nodes.missing import NodeView, missing_for_node
from agent.nodes.objects import NodeObject, Reported, WantedNode
from agent.reading import Document
from nodepool.contract.commands import CordonNode
from nodepool.contract.events import NodeConditionReported, NodeReported
from nodepool.contract.model import CORDON, LOCK_TAINT, NodePhase, Taint
from nodepool.contract.well_known import MANAGED
from support.agent_nodes import LOG, NOW, PLACE, WANTED, remembered
from support.memory_cluster import MemoryCluster

# Any state.

KEYS = ["a", "b", "c"]
MARKS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(["1", "2"]))
TAINTS = st.lists(
    st.builds(
        Taint,
        key=st.sampled_from(["a", "is_gpu", LOCK_TAINT.key, CORDON.key, "node.kubernetes.io/x"]),
        value=st.sampled_from(["", "1"]),
        effect=st.sampled_from(["NoSchedule", "NoExecute"]),
    ),
    unique_by=lambda taint: (taint.key, taint.effect),
    max_size=4,
).map(tuple)
CONDITIONS = st.lists(
    st.builds(
        lambda type, status: {"type": type, "status": status},
        st.sampled_from(["Ready", "GPUMissing", "KernelDeadlock", "CWActive", "PhaseState", "X"]),
        st.sampled_from(["True", "False", "Unknown"]),
    ),
    unique_by=lambda each: each["type"],
).map(tuple)
DRAINS: st.SearchStrategy[Drain] = st.sampled_from(["", "safe", "forced"])
KEPT = st.fixed_dictionaries(
    {
        "log": st.sampled_from([LOG] * 5 + ["log-0"]),
        "assignment": st.sampled_from([1] * 5 + [0, 2]),
        "labels": st.lists(st.sampled_from(KEYS)),
        "annotations": st.lists(st.sampled_from(KEYS)),
        "taints": st.lists(st.sampled_from(["a:NoSchedule", "is_gpu:NoExecute"])),
        "unschedulable": st.sampled_from([None, True, False]),
        "asked": st.sampled_from([None, None, True, False]),
        "cordon": st.integers(0, 2),
        "lock": st.integers(0, 2),
        "conditions": st.dictionaries(
            st.sampled_from(["GPUMissing", "KernelDeadlock"]), st.sampled_from(["True", "False"])
        ),
    }
)
WANTEDS = st.builds(
    WantedNode,
    name=st.just("n1"),
    zone=st.just("z"),
    pool=st.just("p"),
    assignment=st.just(1),
    version=st.just("9"),
    phase=st.sampled_from([NodePhase.PRODUCTION] * 5 + [NodePhase.DELETED]),
    registered=st.sampled_from([True, True, True, False]),
    unschedulable=st.booleans(),
    cordon=st.integers(0, 2),
    lock=st.integers(0, 2),
    drain=DRAINS,
    labels=MARKS,
    annotations=MARKS,
    taints=TAINTS,
    conditions=CONDITIONS,
    request=st.sampled_from([0, 0, 70]),
)


@settings(max_examples=5 * settings().max_examples)
@given(
    st.none() | WANTEDS,
    st.none() | st.tuples(MARKS, MARKS, TAINTS, st.booleans(), CONDITIONS, st.none() | KEPT),
    st.lists(st.sampled_from(["plain", "soft", "guarded", "held"]), unique=True),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_any_state_ends_with_nothing_missing_and_foreign_keys_as_they_were(
    wanted: WantedNode | None,
    state: tuple[
        Mapping[str, str],
        Mapping[str, str],
        tuple[Taint, ...],
        bool,
        tuple[Document, ...],
        Document | None,
    ]
    | None,
    pods: list[str],
    accepts: bool,  # Drawn, as all here.
    believes: bool,
    is_gone: bool,
) -> None:
    # given any state of both sides
    cluster, kept = MemoryCluster(), None
    if state is not None:
        labels, annotations, taints, unschedulable, conditions, kept = state
        document = cluster.add_node("n1", labels=dict(labels), annotations=dict(annotations))
        document["spec"] = {"taints": [t.model_dump(mode="json") for t in taints]}
        document["spec"]["unschedulable"] = unschedulable
        document["status"] = {"conditions": [dict(each) for each in conditions]}
        if kept is not None:
            document["metadata"]["annotations"][MANAGED] = json.dumps(kept)
    for name in pods:
        soft = {} if name == "plain" else {"qos.coreweave.cloud__interruptable": "true"}
        cluster.add_pod(name, "n1", **soft)
    cluster.budgets["default/guarded"] = "its budget"
    cluster.hanging.add("default/held")
    foreign = foreign_of(cluster.node("n1"), wanted, kept)
    is_same_object = cluster.nodes.get("n1", {}).get("metadata", {}).get("uid")

    # when the agent compares and acts until nothing new is missing
    rounds = settle(
        cluster,
        wanted,
        accepts=accepts,
        believes=believes,
        is_gone=is_gone,
    )

    # then that comes soon, and what is foreign is as it was
    assert rounds <= 7
    found = cluster.node("n1")
    if is_same_object is not None and wanted is None and not is_gone:
        assert found is not None
        assert found.uid == is_same_object
        assert sorted(cluster.pods) == sorted(f"default/{name}" for name in pods)
    if found is not None and found.uid == is_same_object:
        assert foreign_of(found, wanted, kept) == foreign


@pytest.mark.parametrize("last", [None, True, False])
@pytest.mark.parametrize("asked", [None, True, False])
def test_any_state_of_a_cordon_comes_to_rest(last: bool | None, asked: bool | None) -> None:
    rounds = []
    both = (True, False)
    for found, wished, accepts, number in product(both, both, both, (0, 1)):
        # given a Node whose annotation says anything of its cordon
        cluster = MemoryCluster()
        document = cluster.add_node("n1", labels={}, annotations={})
        document["spec"] = {"taints": [], "unschedulable": found}
        document["metadata"]["annotations"] = dict(
            remembered(unschedulable=last, asked=asked, cordon=number)
        )
        wanted = replace(WANTED, unschedulable=wished, cordon=1)

        # when the agent compares and acts until nothing new is missing
        rounds.append(settle(cluster, wanted, accepts=accepts, believes=True, is_gone=False))

    # then that comes soon
    assert max(rounds) <= 5


def settle(
    cluster: MemoryCluster,
    wanted: WantedNode | None,
    *,
    accepts: bool,
    believes: bool,
    is_gone: bool,
) -> int:
    """How many rounds have something new to do."""
    reported, attempt = Reported(), None
    for round in range(10):
        view = NodeView(
            wanted,
            cluster.node("n1"),
            cluster.pods_of("n1"),
            reported,
            attempt,
            is_gone=is_gone,
            proven=cluster.proven.get("n1", ""),
        )
        actions = missing_for_node(view, PLACE, LOG, NOW)
        before = json.dumps([cluster.nodes, cluster.pods, cluster.proven]), len(cluster.recorded)
        new = False
        for action in actions:
            cluster.carry_out(action)
            if isinstance(action, Report):
                new = True
                reported = with_report(reported, action)
                if wanted is not None and believes:
                    wanted = with_belief(wanted, action)
            if isinstance(action, Send):
                new = True
                assert wanted is not None
                outcome: Literal["accepted", "refused"] = "accepted" if accepts else "refused"
                attempt = Attempt(action.id, outcome, is_shown=True, command=action.command)
                is_cordon = isinstance(action.command, CordonNode)
                # What is so already changes nothing, and has no new version.
                if accepts and wanted.unschedulable is not is_cordon:
                    wanted = replace(
                        wanted,
                        unschedulable=is_cordon,
                        cordon=wanted.cordon + is_cordon,
                        version=f"{wanted.version}9",
                    )
        repeats = all(isinstance(each, Evict | RecordEvent | Delete) for each in actions)
        if not new and before == (
            json.dumps([cluster.nodes, cluster.pods, cluster.proven]),
            len(cluster.recorded),
        ):
            assert repeats, actions
            return round
    raise AssertionError(actions)


def with_report(reported: Reported, action: Report) -> Reported:
    if isinstance(action.event, NodeReported):
        assert (reported.node, reported.drain) != (action.event, action.drain)
        return replace(reported, node=action.event, drain=action.drain)
    assert reported.conditions.get(action.event.type) != action.event
    return replace(reported, conditions={**reported.conditions, action.event.type: action.event})


def with_belief(wanted: WantedNode, action: Report) -> WantedNode:
    if not isinstance(action.event, NodeConditionReported):
        return wanted
    event = action.event
    rest = [each for each in wanted.conditions if each["type"] != event.type]
    return replace(wanted, conditions=(*rest, {"type": event.type, "status": event.status}))


def foreign_of(
    found: NodeObject | None, wanted: WantedNode | None, kept: Document | None
) -> object:
    """All marks of a Node that neither the bus lists nor the annotation remembers, in order."""
    if found is None or wanted is None:
        return None
    names = ("labels", "annotations", "taints")
    old: dict[str, Any] = {name: kept[name] if kept else [] for name in names}
    own_taints = {f"{taint.key}:{taint.effect}" for taint in wanted.taints}
    managed_keys = {"is_gpu", LOCK_TAINT.key}
    return (
        {
            k: v
            for k, v in found.labels.items()
            if k not in wanted.labels and k not in old["labels"]
        },
        {
            k: v
            for k, v in found.annotations.items()
            if k not in wanted.annotations and k not in old["annotations"] and k != MANAGED
        },
        [
            taint
            for taint in found.taints
            if taint.key == CORDON.key
            or (
                taint.key not in managed_keys
                and f"{taint.key}:{taint.effect}" not in own_taints
                and f"{taint.key}:{taint.effect}" not in old["taints"]
            )
        ],
    )
