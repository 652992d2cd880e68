"""Which Pods wait for a Node, and what each of them asks of it."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest

from agent.pods.waiting import Demand, Requests, demand_of
from agent.reading import UnreadableDocument
from nodepool.contract.model import Taint
from nodepool.contract.pods import Toleration

WAITS = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
PENDING = {"phase": "Pending", "conditions": [WAITS]}
EMPTY: Mapping[str, Any] = {}
ZONE = "topology.kubernetes.io/zone"


def pod(
    spec: Mapping[str, Any] = EMPTY,
    metadata: Mapping[str, Any] = EMPTY,
    status: Mapping[str, Any] = PENDING,
) -> Demand | None:
    """What a Pod of the API server asks of its Node."""
    return demand_of({"metadata": {"name": "job", **metadata}, "spec": spec, "status": status})


def demand(spec: Mapping[str, Any]) -> Demand:
    """What a Pod with this spec asks of its Node, which waits for one."""
    found = pod(spec)
    assert found is not None
    return found


def affine(*terms: Mapping[str, Any]) -> Demand:
    """What a Pod with these terms of a required node affinity asks of its Node."""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return demand({"affinity": {"nodeAffinity": required}})


def expression(key: str, operator: str, *values: str) -> dict[str, object]:
    """One expression of a term."""
    return {"key": key, "operator": operator, "values": list(values)}


def container(**requests: str) -> dict[str, object]:
    """A container that asks for this."""
    names = {"gpu": "nvidia.com/gpu", "accelerator": "sunk.coreweave.com/accelerator"}
    asked = {names.get(name, name): value for name, value in requests.items()}
    return {"resources": {"requests": asked}}


# Which Pods wait.


def test_a_pod_waits_that_the_scheduler_finds_no_node_for() -> None:
    assert pod() == Demand(Requests(0))


@pytest.mark.parametrize(
    "condition",
    [
        pytest.param({**WAITS, "reason": "SchedulingGated"}, id="it is gated"),
        pytest.param({**WAITS, "status": "True"}, id="it is placed"),
        pytest.param({**WAITS, "type": "Ready"}, id="another condition"),
    ],
)
def test_a_pod_does_not_wait_for_a_node_of_which_the_scheduler_says_something_else(
    condition: Mapping[str, str],
) -> None:
    assert pod(status={"phase": "Pending", "conditions": [condition]}) is None


def test_a_pod_that_the_scheduler_has_not_seen_yet_does_not_wait() -> None:
    assert pod(status={"phase": "Pending"}) is None


def test_a_pod_that_has_a_node_or_is_to_get_one_does_not_wait() -> None:
    bound = pod({"nodeName": "g1"})
    nominated = pod(status={**PENDING, "nominatedNodeName": "g1"})

    assert (bound, nominated) == (None, None)


def test_a_pod_that_is_being_deleted_does_not_wait() -> None:
    assert pod(metadata={"deletionTimestamp": "2026-11-01T12:00:00Z"}) is None


def test_a_pod_of_a_daemon_set_is_for_a_node_that_is_there() -> None:
    assert pod(metadata={"ownerReferences": [{"kind": "DaemonSet", "controller": True}]}) is None


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": ["gpu"]},
        {"containers": [container(cpu="1")], "tolerations": "all"},
        {"resources": {"requests": {"cpu": ["1"]}}},
        {"overhead": {"memory": 1.5}},
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "a", "operator": "In", "values": [1]}]}
                        ]
                    }
                }
            }
        },
    ],
)
def test_a_document_that_is_no_pod_is_an_error(spec: Mapping[str, Any]) -> None:
    with pytest.raises(UnreadableDocument):
        pod(spec)


# What they ask for.


def test_what_a_pod_asks_for_is_the_sum_of_its_containers() -> None:
    first = container(gpu="4", cpu="1500m", memory="1Gi")
    second = container(accelerator="4", cpu="0.5", memory="1e9", gpu="1")

    found = demand({"containers": [first, second]})

    assert found.requests == Requests(5, 4, Decimal(2), Decimal(2**30 + 10**9))


def test_what_an_init_container_asks_for_counts_where_it_is_more() -> None:
    found = demand({"containers": [container(cpu="2")], "initContainers": [container(cpu="3")]})

    assert found.requests == Requests(0, cpu=Decimal(3))


def test_what_a_pod_asks_for_as_a_whole_counts_instead_of_its_containers() -> None:
    containers = [container(cpu="2", memory="1Gi", gpu="8")]

    found = demand({"containers": containers, "resources": {"requests": {"cpu": "64"}}})

    assert found.requests == Requests(8, cpu=Decimal(64), memory=Decimal(2**30))


def test_the_overhead_of_a_pod_is_added_to_what_it_asks_for() -> None:
    overhead = {"cpu": "250m", "memory": "120Mi"}
    whole = {"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "3"}}}

    beside = demand({"containers": [container(cpu="2")], "overhead": overhead})
    on_top = demand({**whole, "overhead": {"cpu": "1"}})

    assert beside.requests == Requests(0, cpu=Decimal("2.25"), memory=Decimal(120 * 2**20))
    assert on_top.requests == Requests(0, cpu=Decimal(4))


def test_a_quantity_that_is_not_understood_is_more_than_any_node_has() -> None:
    found = demand({"containers": [container(gpu="many", cpu="some")]})

    assert found.requests == Requests(1_024, cpu=Decimal("Infinity"))


def test_pods_of_one_template_ask_for_the_same() -> None:
    tolerations = [{"operator": "Exists"}, {"key": "team", "value": "red"}]
    spec = {
        "containers": [container(gpu="8")],
        "nodeSelector": {"b": "2", "a": "1"},
        "tolerations": tolerations,
    }
    reordered = {
        **spec,
        "nodeSelector": {"a": "1", "b": "2"},
        "tolerations": tolerations[::-1],
    }

    assert demand(spec) == demand(reordered)
    assert len({demand(spec), demand(reordered)}) == 1


# Labels.


def test_a_selector_accepts_nodes_with_all_of_its_labels() -> None:
    found = demand({"nodeSelector": {"team": "red", ZONE: "US-EAST-04A"}})

    assert found.accepts({"team": "red", ZONE: "US-EAST-04A", "more": ""})
    assert not found.accepts({"team": "red", ZONE: "US-WEST-01A"})
    assert not found.accepts({ZONE: "US-EAST-04A"})


def test_an_affinity_accepts_nodes_of_which_all_of_one_term_holds() -> None:
    found = affine(
        {"matchExpressions": [expression("team", "In", "red"), expression("old", "DoesNotExist")]},
        {"matchExpressions": [expression("slots", "Gt", "3")]},
    )

    accepted = [
        found.accepts({"team": "red"}),
        found.accepts({"slots": "4"}),
        found.accepts({"team": "red", "old": "", "slots": "3"}),
        found.accepts({}),
    ]

    assert accepted == [True, True, False, False]


@pytest.mark.parametrize(
    "term",
    [
        pytest.param({}, id="an empty term"),
        pytest.param({"matchFields": [expression("metadata.name", "In", "g1")]}, id="a name"),
        pytest.param(
            {
                "matchFields": [expression("metadata.name", "In", "g1")],
                "matchExpressions": [expression("team", "Exists")],
            },
            id="a name beside a label",
        ),
    ],
)
def test_a_term_that_no_new_node_can_meet_accepts_none(term: Mapping[str, Any]) -> None:
    assert not affine(term).accepts({"team": "red", "kubernetes.io/hostname": "g1"})


def test_a_preference_keeps_a_pod_from_no_node() -> None:
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}

    assert demand({"affinity": {"nodeAffinity": preferred}}).accepts({})


# Taints.


def test_a_pod_is_repelled_by_a_taint_that_it_does_not_tolerate() -> None:
    red = Taint(key="team", value="red", effect="NoSchedule")
    found = demand({"tolerations": [{"key": "team", "value": "red", "tolerationSeconds": 5}]})

    assert found.tolerations == (Toleration(key="team", value="red"),)
    assert not found.is_repelled((red,), "NoSchedule")
    assert found.is_repelled((red.model_copy(update={"value": "blue"}),), "NoSchedule")
    assert not found.is_repelled((red.model_copy(update={"value": "blue"}),), "NoExecute")


def test_any_key_of_a_taint_can_be_tolerated_and_an_unknown_operator_tolerates_nothing() -> None:
    unknown = {"key": "team", "operator": "Gt", "value": "3"}

    assert demand({"tolerations": [unknown]}).tolerations == ()
