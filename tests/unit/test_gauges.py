"""The gauges of the aggregator: what exists has one, and what does not has none."""

from immutables import Map

from aggregator.gauges import gauges
from aggregator.objects import CapacityObject, QuotaObject
from aggregator.state import State
from nodepool.contract.keys import ledger_key, offering_key
from support.constants import H100, ZONE

LEDGER = {"org": "acme", "zone": ZONE, "instance_type": H100}
LIMIT, USED = "nodepool_quota_limit_nodes", "nodepool_quota_used_nodes"


def with_quota(limit: int | None, used: int, instance_type: str = H100) -> State:
    item = QuotaObject("acme", ZONE, instance_type, limit, used, version=1)
    return State(quotas=Map({ledger_key("acme", ZONE, instance_type): item}))


def test_a_limit_that_is_set_is_shown_with_what_counts_against_it() -> None:
    assert list(gauges(with_quota(8, 3))) == [(LIMIT, LEDGER, 8.0), (USED, LEDGER, 3.0)]


def test_a_limit_of_zero_is_shown() -> None:
    assert list(gauges(with_quota(0, 0))) == [(LIMIT, LEDGER, 0.0), (USED, LEDGER, 0.0)]


def test_a_limit_that_is_not_set_is_absent() -> None:
    assert list(gauges(with_quota(None, 3))) == [(USED, LEDGER, 3.0)]


def test_a_limit_that_was_never_set_and_has_no_use_has_no_gauge() -> None:
    assert list(gauges(with_quota(None, 0))) == []


def test_an_instance_type_that_there_is_not_has_no_gauge() -> None:
    assert list(gauges(with_quota(8, 3, instance_type="typo"))) == []


def test_machines_are_shown_by_what_they_are_doing() -> None:
    item = CapacityObject(ZONE, H100, version=1, free=2, assigned=1)
    state = State(capacity=Map({offering_key(ZONE, H100): item}))

    labels = {"zone": ZONE, "instance_type": H100}
    assert list(gauges(state)) == [
        ("nodepool_machines", labels | {"state": "free"}, 2.0),
        ("nodepool_machines", labels | {"state": "assigned"}, 1.0),
        ("nodepool_machines", labels | {"state": "triage"}, 0.0),
    ]


def test_an_empty_state_has_no_gauges() -> None:
    assert list(gauges(State())) == []
