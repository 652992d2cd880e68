"""Which Nodes in production get the taint of their organisation in a cluster."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from agent.actions import Patch, RecordEvent
from agent.host.declared import HASH, POLICY, TolerationPolicy
from agent.nodes.missing import NodeView, missing_for_node
from nodepool.contract.pods import reserved_taint
from support.agent.answered import answered, unanswered
from support.agent_nodes import FOUND, LOG, NOW, PLACE, WANTED
from support.memory_cluster import MemoryCluster

TAINT = reserved_taint(PLACE.org)
TAINTED = replace(WANTED, taints=(*WANTED.taints, TAINT))
TOLERATION = {"key": TAINT.key, "operator": "Equal", "value": TAINT.value}
MISSING = "there is no policy"


def taints_after(view: NodeView) -> list[object] | None:
    """The taints that the agent gives a Node; None if it changes none."""
    patches = [each for each in missing_for_node(view, PLACE, LOG, NOW) if isinstance(each, Patch)]
    found: list[list[object]] = [
        [taint["key"] for taint in each.patch["spec"]["taints"]]  # type: ignore[index]  # A patch is JSON.
        for each in patches
        if "spec" in each.patch
    ]
    return found[0] if found else None


def events_after(view: NodeView) -> list[str]:
    """What the agent records of a Node."""
    actions = missing_for_node(view, PLACE, LOG, NOW)
    return [each.message for each in actions if isinstance(each, RecordEvent)]


def pods_with(*tolerations: Mapping[str, Any]) -> NodeView:
    """A Node that is to have the taint, and runs a Pod with these tolerations."""
    cluster = MemoryCluster()
    cluster.add_pod("a", FOUND.name)["spec"]["tolerations"] = list(tolerations)
    return NodeView(TAINTED, FOUND, cluster.pods_of(FOUND.name))


def test_a_node_gets_the_taint_if_new_pods_tolerate_it() -> None:
    view = NodeView(TAINTED, FOUND)

    assert taints_after(view) == [*(each.key for each in FOUND.taints), TAINT.key]
    assert events_after(view) == []


def test_a_node_gets_no_taint_that_new_pods_do_not_tolerate_and_tells_why() -> None:
    view = NodeView(TAINTED, FOUND, no_toleration=MISSING)

    assert taints_after(view) is None
    assert events_after(view) == [
        f"the taint {TAINT.key}={TAINT.value}:NoExecute is withheld: {MISSING}"
    ]


def test_a_node_loses_the_taint_once_new_pods_do_not_tolerate_it() -> None:
    found = replace(FOUND, taints=(*FOUND.taints, TAINT))

    assert taints_after(NodeView(TAINTED, found, no_toleration=MISSING)) == [
        each.key for each in FOUND.taints
    ]


@pytest.mark.parametrize("has_taint", [True, False])
def test_a_node_keeps_what_it_has_while_nothing_is_known(has_taint: bool) -> None:
    found = replace(FOUND, taints=(*FOUND.taints, TAINT)) if has_taint else FOUND
    view = NodeView(TAINTED, found, no_toleration=None)

    assert taints_after(view) is None
    assert events_after(view) == []


@pytest.mark.parametrize(
    "toleration",
    [TOLERATION, {"operator": "Exists"}, {"key": TAINT.key, "operator": "Exists"}],
    ids=["its own", "all", "any reservation"],
)
def test_a_pod_that_tolerates_the_taint_keeps_it_from_no_node(
    toleration: Mapping[str, Any],
) -> None:
    assert taints_after(pods_with(toleration)) is not None


@pytest.mark.parametrize(
    "toleration",
    [
        {},
        {**TOLERATION, "value": reserved_taint("another").value},
        {**TOLERATION, "effect": "NoSchedule"},
        {**TOLERATION, "tolerationSeconds": 300},
    ],
    ids=["none", "of another organisation", "of another effect", "for a while"],
)
def test_a_pod_that_would_end_keeps_the_taint_from_its_node_and_is_named(
    toleration: Mapping[str, Any],
) -> None:
    view = pods_with(*([toleration] if toleration else []))

    assert taints_after(view) is None
    (message,) = events_after(view)
    assert message.endswith(
        "is withheld: Pods without a toleration would end: default/a; create these Pods again"
    )


def test_a_pod_takes_no_taint_from_a_node_that_has_it() -> None:
    found = replace(FOUND, taints=(*FOUND.taints, TAINT))

    assert taints_after(replace(pods_with(), found=found)) is None


def test_a_pod_that_ends_keeps_no_taint_away() -> None:
    view = pods_with()
    ending = [replace(each, terminating_since=NOW) for each in view.pods]

    assert taints_after(replace(view, pods=ending)) is not None


# The policy.


async def found(objects: Mapping[str, Mapping[str, Any]]) -> str | None:
    """What a look finds where the API server has these objects, by the plural of their kind."""

    def answer(path: str) -> tuple[int, bytes]:
        for plural, item in objects.items():
            if f"/{plural}/" in path:
                return 200, json.dumps(item).encode()
        return 404, json.dumps({"reason": "NotFound", "message": "it is not found"}).encode()

    async with answered(answer) as api, unanswered() as (_, log):
        return await TolerationPolicy(api, PLACE, lambda: None, log).look()


WHOLE: Mapping[str, Mapping[str, Any]] = {
    "mutatingadmissionpolicies": {"metadata": {"name": POLICY}},
    "mutatingadmissionpolicybindings": {"spec": {"policyName": POLICY}},
    "configmaps": {"data": {HASH: TAINT.value}},
}


async def test_pods_get_the_toleration_where_policy_binding_and_hash_are_there() -> None:
    assert await found(WHOLE) == ""


@pytest.mark.parametrize("plural", WHOLE)
async def test_what_is_missing_is_named(plural: str) -> None:
    assert await found({key: value for key, value in WHOLE.items() if key != plural}) == (
        "it is not found"
    )


@pytest.mark.parametrize(
    ("data", "said"), [({HASH: "0123456789"}, "is 0123456789"), ({}, "is missing")]
)
async def test_a_hash_of_another_organisation_is_named(data: Mapping[str, str], said: str) -> None:
    assert await found({**WHOLE, "configmaps": {"data": data}}) == (
        f"RESERVED_HASH of the ConfigMap kube-system/nodepool-agent {said}, and Pods of"
        f" {PLACE.org} need {TAINT.value}"
    )


async def test_a_binding_of_another_policy_is_named() -> None:
    binding = {"mutatingadmissionpolicybindings": {"spec": {"policyName": "other"}}}

    assert await found({**WHOLE, **binding}) == f"the binding {POLICY} is of another policy"


async def test_an_api_server_that_does_not_respond_says_nothing() -> None:
    async with answered(lambda _: (500, b"no")) as api, unanswered() as (_, log):
        assert await TolerationPolicy(api, PLACE, lambda: None, log).look() is None


async def test_a_policy_counts_once_it_was_found_twice_and_a_fault_at_once() -> None:
    seen: list[str | None] = []
    async with unanswered() as (api, log):
        policy = TolerationPolicy(api, PLACE, lambda: seen.append(policy.fault), log)
        for each in ("", None, "", "", MISSING, None, MISSING, "", MISSING, "", ""):
            policy.note(each)
    assert (seen) == ["", MISSING, ""]
