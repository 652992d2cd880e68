"""The gauges of the aggregator: what exists has one, and what does not has none."""

from immutables import Map

from aggregator.figures.samples import samples as all_samples
from aggregator.figures.state import Figures
from aggregator.objects import CapacityObject, QuotaObject
from aggregator.read_model import ReadModel
from nodepool.contract.keys import ledger_key, offering_key
from nodepool.contract.metrics import MACHINES, QUOTA_LIMIT_NODES, QUOTA_USED_NODES, Sample
from support.constants import H100, ZONE
from support.grown import grown

LEDGER = "acme", ZONE, H100


def samples(model: ReadModel) -> list[Sample]:
    """The samples of a read model but for what it may count and has not."""
    return list(grown(all_samples(model, Figures())))


def with_quota(limit: int | None, used: int, instance_type: str = H100) -> ReadModel:
    item = QuotaObject("acme", ZONE, instance_type, limit, used, version=1)
    return ReadModel(quotas=Map({ledger_key("acme", ZONE, instance_type): item}))


def test_a_limit_that_is_set_is_shown_with_what_counts_against_it() -> None:
    assert samples(with_quota(8, 3)) == [
        (QUOTA_LIMIT_NODES, LEDGER, 8.0),
        (QUOTA_USED_NODES, LEDGER, 3.0),
    ]


def test_a_limit_of_zero_is_shown() -> None:
    assert samples(with_quota(0, 0)) == [
        (QUOTA_LIMIT_NODES, LEDGER, 0.0),
        (QUOTA_USED_NODES, LEDGER, 0.0),
    ]


def test_a_limit_that_is_not_set_is_absent() -> None:
    assert samples(with_quota(None, 3)) == [
        (QUOTA_USED_NODES, LEDGER, 3.0),
    ]


def test_a_limit_that_was_never_set_and_has_no_use_has_no_gauge() -> None:
    assert samples(with_quota(None, 0)) == []


def test_an_instance_type_that_there_is_not_has_no_gauge() -> None:
    assert samples(with_quota(8, 3, instance_type="typo")) == []


def test_machines_are_shown_by_what_they_are_doing() -> None:
    item = CapacityObject(ZONE, H100, version=1, free=2, assigned=1)
    model = ReadModel(capacity=Map({offering_key(ZONE, H100): item}))

    assert samples(model) == [
        (MACHINES, (ZONE, H100, "free", ""), 2.0),
        (MACHINES, (ZONE, H100, "assigned", ""), 1.0),
    ]


def test_an_empty_read_model_has_no_samples() -> None:
    assert samples(ReadModel()) == []
