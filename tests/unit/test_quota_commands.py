"""The command that sets a limit, wakes without work, and what becomes of failures."""

import pytest

from contracts.samples import KIND, ZONE
from nodepool.contract.commands import SetQuota
from nodepool.contract.conditions import Quota
from nodepool.contract.events import (
    CommandAccepted,
    CommandRefused,
    QuotaSet,
    Wake,
)
from nodepool.contract.subjects import Address
from nodepool.service import Failure
from nodepool.state.work import IMMEDIATELY
from quota.decide import SERVICE
from quota.state import State
from unit.quota_service import (
    QuotaService,
    acknowledged,
    configured,
    limit_of,
    unlimited,
    unset,
    verdict,
)

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
        ("MARS-01A", KIND, "zone", "MARS-01A is not a known zone"),
        (ZONE, "none-such", "instanceType", "none-such is not a known instance type"),
        ("MARS-01A", "none-such", "zone", "MARS-01A is not a known zone"),
        ("US-EAST-4A", KIND, "zone", "US-EAST-4A is not a known zone; did you mean US-EAST-04A?"),
        (
            ZONE,
            "gd-8xh100",
            "instanceType",
            "gd-8xh100 is not a known instance type; did you mean gd-8xh100ib-i128?",
        ),
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


@pytest.mark.parametrize("org", ["fleet", "a b", "a/b", "Acme", "", "x" * 64])
def test_a_limit_for_what_can_be_no_organisation_is_refused(org: str) -> None:
    quota = QuotaService()

    (outcome,) = quota.set_limit(8, org=org)

    assert isinstance(outcome, CommandRefused)
    assert (outcome.reason, outcome.field) == ("Invalid", "org")
    assert quota.state == State()


# The command that unsets a limit.


def test_an_unset_limit_is_published_with_what_is_granted_under_it() -> None:
    quota = QuotaService()
    quota.set_limit(8)
    quota.specify("train", 0)
    quota.specify("serve", 3)

    outputs = quota.process(unset())

    assert outputs[:2] == unlimited(granted=3)


def test_a_limit_that_is_not_set_cannot_be_unset() -> None:
    quota = QuotaService()

    outputs = quota.process(unset())

    assert outputs == [
        CommandRefused(
            org="acme",
            cluster="_",
            pool="_",
            command="DeleteQuota",
            reason="NotFound",
            field="instanceType",
            message=f"no quota is set for {KIND} in {ZONE}",
        )
    ]
    assert quota.state == State()


def test_a_limit_that_was_unset_can_be_set_again_and_serves_those_that_wait() -> None:
    quota = QuotaService()
    quota.set_limit(8)
    quota.specify("train", 3)
    quota.hears(unset(), acknowledged("train", 0, number=2))

    outputs = quota.set_limit(3)

    assert outputs == [
        *configured(3, granted=0),
        verdict("train", Quota.UNDER, granted=3, limit=3, used=3, number=3),
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


def test_a_failure_of_any_other_message_is_not_shown_by_a_pool() -> None:
    address = Address("evt", "", ("acme", "prod", "train"), "CWNodeAssigned")

    outputs = SERVICE.on_failure(
        SERVICE.initial, Failure(address, "CWNodeAssigned", "", "is not JSON")
    )

    assert list(outputs) == []
