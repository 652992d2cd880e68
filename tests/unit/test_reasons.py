"""Every reason of every condition is known wherever reasons are told apart.

Each expectation follows from the status of the reason, so a new reason needs no line here.
"""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from dashboards.shared import IN_STATE, REASONS
from nodepool.cli.tables import paint
from nodepool.contract.conditions import (
    LOOKS,
    ORDER,
    Accepted,
    Allocated,
    AtTarget,
    Capacity,
    Condition,
    NodesRemoved,
    Quota,
    Reason,
    SufficientCapacity,
    Validated,
    change_condition,
    compute_accepted,
    list_deprecated,
    status_of,
)
from nodepool.contract.progress import RECONCILING, STALLED, evaluated_generation, progressing
from nodepool.explanation.causes import causes
from nodepool.explanation.documents import facts

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
DEPRECATED = (Accepted, Allocated, SufficientCapacity)
OF_CHECKS: list[Reason] = [*Validated, *Quota, *Capacity]
OF_NODES: list[Reason] = [*AtTarget, *NodesRemoved]
EACH = pytest.mark.parametrize("reason", [*OF_CHECKS, *OF_NODES], ids=repr)
EACH_OF_A_CHECK = pytest.mark.parametrize("reason", OF_CHECKS, ids=repr)


def conditions_with(reason: Reason) -> dict[str, Condition]:
    """The conditions of a NodePool that has too few Nodes and otherwise only this reason."""
    healthy = (Validated.VALID, Quota.UNDER, Capacity.SUFFICIENT, AtTarget.UNDER_TARGET)
    found = [change_condition(None, each, "", 1, NOON) for each in (*healthy, reason)]
    return {each.type: each for each in found}


def document_with(reason: Reason) -> dict[str, object]:
    """The NodePool of these conditions: it has one of three Nodes."""
    return {
        "metadata": {"name": "train", "generation": 1, "resourceVersion": "90"},
        "spec": {"instanceType": "gd-8xh100ib-i128", "targetNodes": 3},
        "status": {
            "currentNodes": 1,
            "grantedNodes": 1 if isinstance(reason, Quota) else 3,
            "conditions": [each.document() for each in conditions_with(reason).values()],
        },
    }


def test_no_condition_is_left_out() -> None:
    kinds = {type(reason) for reason in (*OF_CHECKS, *OF_NODES)}

    assert kinds == {*ORDER} - {*DEPRECATED}
    assert {str(reason) for kind in kinds for reason in kind} == {*LOOKS}


@EACH_OF_A_CHECK
def test_a_reason_that_only_a_person_ends_stalls_the_pool(reason: Reason) -> None:
    status, kind = status_of(reason), type(reason)
    stalls = status == "Unknown" or (status == "False" and kind is not Capacity)

    found = progressing(conditions_with(reason), 1, deleting=False, is_granted=False)

    assert found is not None
    assert (found.type, found.reason) == (
        (STALLED, reason) if stalls else (RECONCILING, AtTarget.UNDER_TARGET)
    )


@pytest.mark.parametrize("reason", OF_NODES, ids=repr)
def test_a_reason_about_nodes_is_done_or_on_its_way_or_stalls(reason: Reason) -> None:
    deleting = isinstance(reason, NodesRemoved)

    found = progressing(conditions_with(reason), 1, deleting=deleting, is_granted=False)

    shown = {"True": None, "False": RECONCILING, "Unknown": STALLED}[status_of(reason)]
    if deleting and shown is None:
        shown = RECONCILING
    assert (found and found.type) == shown


@EACH_OF_A_CHECK
def test_the_next_checks_wait_for_a_valid_spec_and_for_a_check_that_decides(
    reason: Reason,
) -> None:
    # given a reason on the newest generation, and conditions of an older one
    older = {
        kind: replace(each, generation=0) for kind, each in conditions_with(Quota.UNDER).items()
    }
    newest = change_condition(None, reason, "", 1, NOON)
    first = {type(reason).__name__: newest}
    before = ["Validated", "Quota", "Capacity"]
    before = before[: before.index(newest.type)]
    passed = {kind: replace(older[kind], generation=1) for kind in before}

    # then that is all there will be if the reason ends the checks
    ends = newest.status == "Unknown" or reason is Validated.INVALID
    is_last = newest.type == "Capacity"
    assert evaluated_generation(older | passed | first) == int(ends or is_last)


@EACH
def test_explain_names_a_reason_that_keeps_the_pool_from_its_target(reason: Reason) -> None:
    titles = [cause.title for cause in causes(facts(document_with(reason)))]

    is_cause = status_of(reason) == "Unknown" or (
        status_of(reason) == "False" and reason in OF_CHECKS
    )
    assert (f"{type(reason).__name__} is {reason}" in titles) is is_cause


@pytest.mark.parametrize("reason", Quota, ids=repr)
def test_a_peer_waits_for_quota_with_each_reason_that_refuses_it(reason: Quota) -> None:
    peer = document_with(reason)

    (found,) = facts(document_with(Quota.UNDER), peers=[("acme/prod/other", peer, [])]).peers

    assert found.waits_for_quota is (status_of(reason) == "False")


@EACH_OF_A_CHECK
def test_accepted_has_no_quota_with_each_reason_that_refuses_it(reason: Reason) -> None:
    found = compute_accepted(None, conditions_with(reason), NOON, refused=False)

    assert found is not None
    lacks = isinstance(reason, Quota) and status_of(reason) == "False"
    assert (found.reason == Accepted.NO_QUOTA) is lacks


@EACH
def test_the_deprecated_twin_of_a_reason_has_its_status(reason: Reason) -> None:
    twins = {"AtTarget": "Allocated", "Capacity": "SufficientCapacity"}
    conditions = conditions_with(reason)

    for each in list_deprecated(conditions, None):
        (source,) = (kind for kind, twin in twins.items() if twin == each.type)
        assert each.status == conditions[source].status


@EACH_OF_A_CHECK
def test_the_command_line_colours_each_reason_but_those_that_are_true(reason: Reason) -> None:
    is_coloured = paint(type(reason).__name__.upper(), str(reason)) != str(reason)

    assert is_coloured is (status_of(reason) != "True")


@EACH
def test_the_dashboards_colour_each_reason_by_its_status(reason: Reason) -> None:
    colour = IN_STATE[reason]

    assert reason in REASONS
    assert (colour == "green") is (status_of(reason) == "True")
    assert (colour == "purple") is (status_of(reason) == "Unknown")
