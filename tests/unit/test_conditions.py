from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nodepool.contract.conditions import (
    HEALTHY,
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
from nodepool.contract.moments import rfc3339
from nodepool.contract.progress import evaluated_generation

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=5)
REASONS: list[Reason] = [reason for kind in ORDER for reason in kind]


def conditions_with(*reasons: Reason) -> dict[str, Condition]:
    """The conditions of a NodePool with these reasons, by type."""
    conditions = [
        change_condition(None, reason, f"because {reason}", 3, NOON) for reason in reasons
    ]
    return {condition.type: condition for condition in conditions}


def shown(*conditions: Condition) -> list[tuple[str, str, str]]:
    """Type, status and reason of each condition."""
    return [(condition.type, condition.status, condition.reason) for condition in conditions]


def test_every_reason_of_every_type_has_the_documented_status() -> None:
    statuses = {
        kind.__name__: {str(reason): status_of(reason) for reason in kind} for kind in ORDER
    }

    assert statuses == {
        "Validated": {"Valid": "True", "Invalid": "False", "InternalError": "Unknown"},
        "Capacity": {
            "Sufficient": "True",
            "Partial": "False",
            "NoneAvailable": "False",
            "NoneAvailableNodeAffinity": "False",
            "PartialNodeAffinity": "False",
            "InternalError": "Unknown",
        },
        "Quota": {
            "Under": "True",
            "Over": "False",
            "NotSet": "False",
            "InternalError": "Unknown",
        },
        "AtTarget": {
            "TargetMet": "True",
            "PendingDelete": "False",
            "OverTarget": "False",
            "UnderTarget": "False",
            "InternalError": "Unknown",
        },
        "NodesRemoved": {"Complete": "True", "Pending": "False", "InternalError": "Unknown"},
        "Accepted": {
            "Accepted": "True",
            "Invalid": "False",
            "PolicyViolation": "False",
            "NoQuota": "False",
            "InternalError": "Unknown",
        },
        "Allocated": {
            "Complete": "True",
            "PendingDelete": "False",
            "OverTarget": "False",
            "UnderTarget": "False",
            "InternalError": "Unknown",
            "Unknown": "Unknown",
        },
        "SufficientCapacity": {
            "Sufficient": "True",
            "Partial": "False",
            "NoneAvailable": "False",
            "InternalError": "Unknown",
        },
    }


def test_the_types_are_shown_in_the_documented_order_deprecated_ones_last() -> None:
    assert [kind.__name__ for kind in ORDER] == [
        "Validated",
        "Capacity",
        "Quota",
        "AtTarget",
        "NodesRemoved",
        "Accepted",
        "Allocated",
        "SufficientCapacity",
    ]


def test_a_healthy_nodepool_shows_exactly_the_documented_messages() -> None:
    assert HEALTHY == {
        Validated.VALID: "NodePool configuration is valid.",
        Capacity.SUFFICIENT: "Sufficient capacity available for the requested instance type.",
        Quota.UNDER: "NodePool is within instance type quota.",
        AtTarget.TARGET_MET: "NodePool has reached its target node count.",
    }
    assert all(status_of(reason) == "True" for reason in HEALTHY)


def test_a_first_verdict_has_the_current_time() -> None:
    condition = change_condition(None, Quota.OVER, "too many", 3, NOON)

    assert condition == Condition("Quota", "False", "Over", "too many", NOON, 3)


def test_the_transition_time_stays_while_only_reason_and_message_change() -> None:
    before = change_condition(None, Capacity.PARTIAL, "1 of 3", 3, NOON)

    after = change_condition(before, Capacity.NONE_AVAILABLE, "none of 3", 4, LATER)

    assert after == Condition("Capacity", "False", "NoneAvailable", "none of 3", NOON, 4)


def test_the_transition_time_moves_with_the_status() -> None:
    before = change_condition(None, Capacity.PARTIAL, "1 of 3", 3, NOON)

    after = change_condition(before, Capacity.SUFFICIENT, "enough", 3, LATER)

    assert after == Condition("Capacity", "True", "Sufficient", "enough", LATER, 3)


def test_the_same_verdict_again_is_the_same_condition() -> None:
    before = change_condition(None, Capacity.PARTIAL, "1 of 3", 3, NOON)

    assert change_condition(before, Capacity.PARTIAL, "1 of 3", 3, LATER) is before


verdicts = st.lists(
    st.tuples(st.sampled_from(list(AtTarget)), st.sampled_from(["", "text"]), st.integers(1, 3)),
    min_size=1,
)


@given(verdicts)
def test_the_transition_time_is_always_that_of_the_last_change_of_status(
    history: list[tuple[AtTarget, str, int]],
) -> None:
    condition: Condition | None = None
    expected, status = NOON, ""

    for minute, (reason, message, generation) in enumerate(history):
        now = NOON + timedelta(minutes=minute)
        condition = change_condition(condition, reason, message, generation, now)
        if status_of(reason) != status:
            expected, status = now, status_of(reason)

        assert condition == Condition(
            "AtTarget", status_of(reason), str(reason), message, expected, generation
        )


def test_a_condition_is_shown_as_kubernetes_shows_it() -> None:
    condition = change_condition(None, Quota.OVER, "too many", 3, NOON)

    assert condition.document() == {
        "lastTransitionTime": "2026-01-01T12:00:00Z",
        "message": "too many",
        "observedGeneration": 3,
        "reason": "Over",
        "status": "False",
        "type": "Quota",
    }


def test_a_moment_is_shown_in_whole_seconds_of_utc() -> None:
    berlin = timezone(timedelta(hours=1))

    assert rfc3339(NOON.replace(microsecond=999_999)) == "2026-01-01T12:00:00Z"
    assert rfc3339(NOON.astimezone(berlin)) == "2026-01-01T12:00:00Z"


# The deprecated conditions are computed from those that replaced them.


def test_a_healthy_nodepool_is_accepted_allocated_and_has_sufficient_capacity() -> None:
    conditions = conditions_with(
        Validated.VALID, Capacity.SUFFICIENT, Quota.UNDER, AtTarget.TARGET_MET
    )

    replaced = list_deprecated(conditions, compute_accepted(None, conditions, NOON, refused=False))

    assert shown(*replaced) == [
        ("Accepted", "True", "Accepted"),
        ("Allocated", "True", "Complete"),
        ("SufficientCapacity", "True", "Sufficient"),
    ]
    assert {(condition.since, condition.generation) for condition in replaced} == {(NOON, 3)}


def test_a_nodepool_without_verdicts_has_no_deprecated_conditions() -> None:
    assert list_deprecated({}, None) == ()


@pytest.mark.parametrize(
    ("reasons", "refused", "status", "reason"),
    [
        pytest.param((Validated.INVALID,), False, "False", "Invalid", id="invalid"),
        pytest.param((Validated.INVALID,), True, "False", "PolicyViolation", id="not offered"),
        pytest.param(
            (Validated.INTERNAL_ERROR,), False, "Unknown", "InternalError", id="validation failed"
        ),
        pytest.param((Validated.VALID,), False, "True", "Accepted", id="valid, quota unknown"),
        pytest.param(
            (Validated.VALID, Quota.OVER), False, "False", "NoQuota", id="valid and over quota"
        ),
        pytest.param(
            (Validated.VALID, Quota.NOT_SET), False, "False", "NoQuota", id="valid without quota"
        ),
        pytest.param(
            (Validated.VALID, Quota.INTERNAL_ERROR), False, "True", "Accepted", id="quota failed"
        ),
        pytest.param(
            (Validated.INVALID, Quota.OVER), False, "False", "Invalid", id="invalid before quota"
        ),
    ],
)
def test_accepted_follows_validated_and_quota(
    reasons: tuple[Reason, ...], refused: bool, status: str, reason: str
) -> None:
    condition = compute_accepted(None, conditions_with(*reasons), NOON, refused=refused)

    assert condition is not None
    assert shown(condition) == [("Accepted", status, reason)]


@given(
    st.lists(
        st.sampled_from(
            [reason for reason in REASONS if isinstance(reason, Validated | Quota | Capacity)]
        ),
        max_size=30,
    )
)
def test_the_transition_time_of_accepted_is_that_of_its_last_change_of_status(
    reasons: list[Reason],
) -> None:
    # given verdicts that follow each other a minute apart
    conditions: dict[str, Condition] = {}
    kept: Condition | None = None
    since = NOON
    for minute, reason in enumerate(reasons):
        now = NOON + timedelta(minutes=minute)
        kind = type(reason).__name__
        conditions[kind] = change_condition(conditions.get(kind), reason, "", 1, now)

        # when Accepted follows them
        before = kept.status if kept is not None else None
        kept = compute_accepted(kept, conditions, now, refused=False)

        # then its time moves with its status, and never back
        if kept is not None:
            since = since if kept.status == before else now
            assert kept.since == since


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (AtTarget.TARGET_MET, ("Allocated", "True", "Complete")),
        (AtTarget.PENDING_DELETE, ("Allocated", "False", "PendingDelete")),
        (AtTarget.OVER_TARGET, ("Allocated", "False", "OverTarget")),
        (AtTarget.UNDER_TARGET, ("Allocated", "False", "UnderTarget")),
        (AtTarget.INTERNAL_ERROR, ("Allocated", "Unknown", "InternalError")),
    ],
)
def test_allocated_follows_at_target(reason: AtTarget, expected: tuple[str, str, str]) -> None:
    assert shown(*list_deprecated(conditions_with(reason), None)) == [expected]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (Capacity.SUFFICIENT, ("SufficientCapacity", "True", "Sufficient")),
        (Capacity.PARTIAL, ("SufficientCapacity", "False", "Partial")),
        (Capacity.PARTIAL_NODE_AFFINITY, ("SufficientCapacity", "False", "Partial")),
        (Capacity.NONE_AVAILABLE, ("SufficientCapacity", "False", "NoneAvailable")),
        (
            Capacity.NONE_AVAILABLE_NODE_AFFINITY,
            ("SufficientCapacity", "False", "NoneAvailable"),
        ),
        (Capacity.INTERNAL_ERROR, ("SufficientCapacity", "Unknown", "InternalError")),
    ],
)
def test_sufficient_capacity_follows_capacity(
    reason: Capacity, expected: tuple[str, str, str]
) -> None:
    assert shown(*list_deprecated(conditions_with(reason), None)) == [expected]


def test_a_deprecated_condition_has_the_message_and_the_time_of_its_replacement() -> None:
    conditions = conditions_with(Capacity.PARTIAL_NODE_AFFINITY)

    (condition,) = list_deprecated(conditions, None)

    assert condition == Condition(
        "SufficientCapacity", "False", "Partial", "because PartialNodeAffinity", NOON, 3
    )


def test_every_deprecated_condition_is_computed_from_reasons_that_exist() -> None:
    for reason in REASONS:
        if not isinstance(reason, Accepted | Allocated | SufficientCapacity | NodesRemoved):
            for condition in list_deprecated(conditions_with(reason), None):
                assert (condition.type, condition.status) in {
                    (type(other).__name__, status_of(other))
                    for other in REASONS
                    if other.value == condition.reason
                }


CHECKS = st.tuples(
    st.sampled_from((Validated.VALID, Validated.INVALID)),
    st.sampled_from((Quota.UNDER, Quota.OVER)),
    st.sampled_from((Capacity.SUFFICIENT, Capacity.NONE_AVAILABLE)),
)
GENERATIONS = st.lists(st.integers(1, 3), min_size=3, max_size=3)


@given(CHECKS, GENERATIONS, st.integers(0, 3))
@example((Validated.VALID, Quota.UNDER, Capacity.SUFFICIENT), [3, 2, 1], 3)
@example((Validated.VALID, Quota.UNDER, Capacity.SUFFICIENT), [1, 2, 1], 2)
def test_no_generation_counts_as_evaluated_that_a_check_has_not_reached(
    reasons: tuple[Validated, Quota, Capacity], generations: list[int], count: int
) -> None:
    # given the conditions of the first checks, in their order, each on a generation
    kinds: list[Reason] = [*reasons]
    judged = list(zip(kinds, generations, strict=True))[:count]
    conditions = [change_condition(None, reason, "", number, NOON) for reason, number in judged]

    evaluated = evaluated_generation({each.type: each for each in conditions})

    # then each check up to the first failure has evaluated it
    failing = (Validated.INVALID,)
    last = next((n for n, (reason, _) in enumerate(judged) if reason in failing), 2)
    numbers = [number for _, number in judged[: last + 1]]
    assert evaluated == (min(numbers) if len(numbers) == last + 1 else 0)
