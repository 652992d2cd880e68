"""The command that sets a limit, wakes without work, and what becomes of failures."""

import pytest

from nodepool.contract.commands import SetQuota
from nodepool.contract.events import (
    CommandAccepted,
    CommandRefused,
    CWNodePoolQuotaCheckFailed,
    QuotaSet,
    Wake,
)
from nodepool.contract.subjects import Address
from nodepool.service import Failure
from nodepool.state.work import IMMEDIATELY
from quota.decide import SERVICE
from unit.quota_service import QuotaService, configured, limit_of, of
from unit.samples import KIND, ZONE

# The command that sets a limit.


def test_an_accepted_limit_is_published_with_what_is_granted_under_it() -> None:
    quota = QuotaService()
    quota.set_limit(8)
    quota.specify("train", 3)

    outputs = quota.process(limit_of(9))

    assert outputs == [
        CommandAccepted(org="acme", cluster="_", pool="_", command="SetQuota", result="configured"),
        QuotaSet(org="acme", zone=ZONE, instance_type=KIND, limit=9, granted=3),
    ]


def test_setting_the_limit_to_what_it_is_changes_nothing() -> None:
    quota = QuotaService()
    quota.set_limit(8)

    outputs = quota.process(limit_of(8))

    assert outputs == [
        CommandAccepted(org="acme", cluster="_", pool="_", command="SetQuota", result="unchanged")
    ]


def test_a_command_that_is_delivered_twice_is_carried_out_once() -> None:
    quota = QuotaService()
    first = quota.process(limit_of(8), id="command-1")
    quota.set_limit(9)

    second = quota.process(limit_of(8), id="command-1")

    assert first == configured(8, granted=0)
    assert second == first[:1]
    assert quota.ledger.limit == 9


@pytest.mark.parametrize(
    ("zone", "instance_type", "field", "message"),
    [
        ("MARS-01A", KIND, "zone", "MARS-01A is not known"),
        (ZONE, "none-such", "instanceType", "none-such is not known"),
        ("MARS-01A", "none-such", "zone", "MARS-01A is not known"),
    ],
)
def test_a_limit_for_an_unknown_zone_or_instance_type_is_refused(
    zone: str, instance_type: str, field: str, message: str
) -> None:
    quota = QuotaService()

    outputs = quota.hears(SetQuota(org="acme", zone=zone, instance_type=instance_type, limit=8))

    assert outputs == [
        CommandRefused(
            org="acme",
            cluster="_",
            pool="_",
            command="SetQuota",
            reason="Invalid",
            field=field,
            message=message,
        )
    ]


# Wakes without work, and failures.


def test_a_wake_without_work_has_no_output() -> None:
    quota = QuotaService()
    wake = Wake(service="quota", due=IMMEDIATELY)

    before = quota.process(wake)
    quota.set_limit(8)
    after = quota.process(wake)

    assert before == []
    assert after == []


def test_a_pool_whose_quota_could_not_be_checked_shows_it() -> None:
    address = Address("evt", "", ("acme", "prod", "train"), "NodePoolValidated")

    outputs = SERVICE.on_failure(
        SERVICE.initial, Failure(address, "NodePoolValidated", "", "KeyError: 'x'", True)
    )

    assert list(outputs) == [
        CWNodePoolQuotaCheckFailed(
            **of("train"), message="internal error while checking quota: KeyError: 'x'"
        )
    ]


def test_a_failure_of_any_other_message_is_not_shown_by_a_pool() -> None:
    address = Address("evt", "", ("acme", "prod", "train"), "CWNodeAssigned")

    outputs = SERVICE.on_failure(
        SERVICE.initial, Failure(address, "CWNodeAssigned", "", "is not JSON")
    )

    assert list(outputs) == []
