"""A check that fails is shown by its NodePool, keeps no other waiting, and is tried again."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from nodepool.contract.conditions import Quota, Validated
from nodepool.contract.events import (
    CWNodePoolQuotaCheckFailed,
    QuotaChecked,
    QuotaCheckFailed,
)
from nodepool.contract.subjects import Address
from nodepool.service import Context, Failure
from quota.decide import SERVICE
from quota.ledger import Ledger
from quota.pool import Pool
from quota.state import evolve
from quota.verdict import verdict as sound_verdict
from unit.quota_service import (
    QuotaService,
    acknowledged,
    configured,
    deleting,
    exceeds,
    of,
    released,
    specified,
    uid_of,
    verdict,
    warning,
)

MINUTE = timedelta(minutes=1)
TEXT = "internal error while checking quota: LookupError: broken"


@contextmanager
def a_bug_that_one_pool_brings_up(name: str = "bad") -> Iterator[None]:
    """In here, the check of the NodePool of this name raises an exception."""

    def check(pool: Pool, ledger: Ledger) -> QuotaChecked:
        if pool.key.endswith(f"/{name}"):
            raise LookupError("broken")
        return sound_verdict(pool, ledger)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("quota.checks.verdict", check)
        yield


def failed(pool: str, *, shown: bool = True) -> list[QuotaCheckFailed | CWNodePoolQuotaCheckFailed]:
    """What is said of a failed check; with the event for people, where they do not know yet."""
    event = QuotaCheckFailed(**of(pool), message=TEXT)
    return (
        [event, CWNodePoolQuotaCheckFailed(**of(pool), uid=uid_of(pool), message=TEXT)]
        if shown
        else [event]
    )


def test_a_check_that_fails_is_tried_again_after_a_minute_and_five_and_every_fifteen() -> None:
    # given a pool whose check fails
    quota = QuotaService()
    quota.set_limit(8)
    with a_bug_that_one_pool_brings_up():
        first = quota.outputs_of(specified("bad", 2))

        # when time passes
        due, retries = list[timedelta](), list[object]()
        for _ in range(4):
            assert quota.due is not None
            due.append(quota.due - quota.now)
            quota.now = quota.due
            retries += quota.outputs_of(quota.next_wake())

    # then it is tried again, and people are told of the same failure once
    assert first == failed("bad")
    assert due == [MINUTE, 5 * MINUTE, 15 * MINUTE, 15 * MINUTE]
    assert retries == 4 * failed("bad", shown=False)


def test_what_a_pool_gives_back_in_between_does_not_begin_its_delays_anew() -> None:
    # given a pool with a grant to give back, whose check failed
    quota = QuotaService()
    quota.set_limit(4)
    quota.specify("bad", 4)
    quota.specify("bad", 1)
    with a_bug_that_one_pool_brings_up():
        quota.outputs_of(specified("bad", 2, generation=3))

        # when it gives that back, and its check fails again
        outputs = quota.outputs_of(acknowledged("bad", 1, number=2))
        second = quota.now
        at_once = quota.wake_until_idle()

    assert outputs == [released("bad", granted=1, used=1), *failed("bad", shown=False)]
    assert at_once == []
    assert quota.due == second + 5 * MINUTE


def test_a_grant_that_must_cover_more_nodes_is_checked_once_after_a_failure() -> None:
    # given a pool that shrinks, and a check that failed when it wanted more again
    quota = QuotaService()
    quota.set_limit(4)
    quota.specify("bad", 4)
    quota.assign("bad", 4)
    quota.specify("bad", 1)
    with a_bug_that_one_pool_brings_up():
        quota.outputs_of(specified("bad", 2, generation=3))

    # when the bug is mended, and the allocator works to the smaller grant
    outputs = quota.hears(acknowledged("bad", 1, number=2))

    assert outputs == [
        verdict("bad", Quota.UNDER, granted=2, limit=4, used=4, generation=3, number=3)
    ]
    assert quota.due is None


def test_a_retry_that_succeeds_ends_the_failure() -> None:
    quota = QuotaService()
    quota.set_limit(8)
    with a_bug_that_one_pool_brings_up():
        quota.outputs_of(specified("bad", 2))

    quota.now += MINUTE
    outputs = quota.wake()

    assert outputs == [verdict("bad", Quota.UNDER, granted=2, limit=8, used=2)]
    assert quota.due is None


def test_a_raised_limit_checks_a_pool_again_whose_check_failed() -> None:
    quota = QuotaService()
    quota.set_limit(1)
    with a_bug_that_one_pool_brings_up():
        quota.outputs_of(specified("bad", 2))

    outputs = quota.set_limit(8)

    assert outputs == [
        *configured(8, granted=0),
        verdict("bad", Quota.UNDER, granted=2, limit=8, used=2),
    ]
    assert quota.due is None


def test_a_change_of_what_others_use_checks_a_pool_again_whose_check_failed() -> None:
    quota = QuotaService()
    quota.set_limit(2)
    with a_bug_that_one_pool_brings_up():
        quota.outputs_of(specified("bad", 2))

    outputs = quota.specify("good", 1)

    text = exceeds(2, 2, "1 used by 1 other pool")
    assert outputs == [
        verdict("good", Quota.UNDER, granted=1, limit=2, used=1),
        verdict("bad", Quota.OVER, granted=0, limit=2, used=1, message=text),
        warning("bad", text),
    ]


def test_a_grant_shrinks_with_the_limit_although_the_check_failed_at_that_change() -> None:
    # given a grant of which nothing is used, and a check that fails when the limit is lowered
    quota = QuotaService()
    quota.set_limit(5)
    quota.specify("bad", 5)
    with a_bug_that_one_pool_brings_up():
        lowered = quota.set_limit(3)

    # when it is tried again
    quota.now += MINUTE
    retried = quota.wake_until_idle()

    text = exceeds(5, 3)
    assert lowered == [*configured(3, granted=5), *failed("bad")]
    assert retried == [
        verdict("bad", Quota.OVER, granted=0, limit=3, used=5, number=2, message=text),
        warning("bad", text),
    ]


def test_a_pool_whose_check_fails_keeps_no_other_from_its_verdict() -> None:
    # given three pools that wait
    quota = QuotaService()
    quota.set_limit(0)
    for pool in ("before", "bad", "after"):
        quota.specify(pool, 2)

    # when the limit is raised, and the check of one fails
    with a_bug_that_one_pool_brings_up():
        outputs = quota.set_limit(4)
        newcomer = quota.outputs_of(specified("newcomer", 0))

    # then the others have what they may have
    assert outputs == [
        *configured(4, granted=0),
        verdict("before", Quota.UNDER, granted=2, limit=4, used=2, number=2),
        *failed("bad"),
        verdict("after", Quota.UNDER, granted=2, limit=4, used=4, number=2),
    ]
    assert newcomer == [verdict("newcomer", Quota.UNDER, granted=0, limit=4, used=4)]


def test_a_pool_whose_check_failed_keeps_its_place_in_line() -> None:
    # given that the check of a pool fails that waits, and others come
    quota = QuotaService()
    quota.set_limit(0)
    with a_bug_that_one_pool_brings_up():
        quota.outputs_of(specified("bad", 2))
        quota.outputs_of(specified("other", 2))

    # when the bug is mended, and then there is room for one of them
    quota.now += MINUTE
    quota.wake_until_idle()
    outputs = quota.set_limit(2)

    text = exceeds(2, 2, "2 used by 1 other pool")
    assert outputs == [
        *configured(2, granted=0),
        verdict("bad", Quota.UNDER, granted=2, limit=2, used=2, number=2),
        verdict("other", Quota.OVER, granted=0, limit=2, used=2, message=text),
        warning("other", text),
    ]


def test_of_a_pool_that_is_deleted_no_check_is_tried_again() -> None:
    quota = QuotaService()
    quota.set_limit(8)
    with a_bug_that_one_pool_brings_up():
        quota.outputs_of(specified("bad", 2))

        quota.outputs_of(deleting("bad"))

    assert quota.due is None
    assert list(quota.state.pools) == []


def test_what_a_pool_gives_back_is_not_lost_where_the_step_fails() -> None:
    # given a pool in deletion that gives back its grant, for which another waits
    quota = QuotaService()
    quota.set_limit(2)
    quota.specify("train", 2)
    quota.specify("waiting", 2)
    quota.hears(deleting("train"))

    # when nothing can be released for a while, and then it can again
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("quota.decide.release_nodes", None)
        step = quota.outputs_of(acknowledged("train", 0, number=1, final=True))
    at_once = quota.wake_until_idle()
    quota.now += MINUTE
    rest = quota.wake_until_idle()

    text = "internal error while checking quota: TypeError: 'NoneType' object is not callable"
    assert step == [QuotaCheckFailed(**of("train"), message=text)]
    assert at_once == []
    assert rest == [
        released("train", granted=0, used=0),
        verdict("waiting", Quota.UNDER, granted=2, limit=2, used=2, number=2),
    ]
    assert quota.due is None


def test_a_pool_that_comes_again_under_another_limit_frees_the_one_before_at_the_next_try() -> None:
    # given a deleted pool whose release failed, and for which another waits
    quota = QuotaService()
    quota.set_limit(2)
    quota.specify("train", 2)
    quota.specify("waiting", 2)
    quota.hears(deleting("train"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("quota.decide.release_nodes", None)
        quota.outputs_of(acknowledged("train", 0, number=1, final=True))

    # when a pool of its name is created in another zone
    again = quota.specify("train", 1, uid=uid_of("train", 2), zone="RNO2A")
    quota.now += MINUTE
    rest = quota.wake_until_idle()

    # then what the first one had goes to the pool that waits
    outputs = [*again, *rest]
    assert released("train", granted=0, used=0) in outputs
    assert verdict("waiting", Quota.UNDER, granted=2, limit=2, used=2, number=2) in outputs


def test_a_pool_that_comes_again_under_another_limit_fails_for_the_first_time() -> None:
    # given a deleted pool whose release failed
    quota = QuotaService()
    quota.set_limit(2)
    quota.specify("bad", 2)
    quota.hears(deleting("bad"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("quota.decide.release_nodes", None)
        quota.outputs_of(acknowledged("bad", 0, number=1, final=True))

    # when the check of a pool of its name in another zone fails
    again = uid_of("bad", 2)
    with a_bug_that_one_pool_brings_up():
        outputs = quota.outputs_of(specified("bad", 1, uid=again, zone="RNO2A"))

    # then it is checked once, and again after the first delay
    assert outputs == [
        released("bad", granted=0, used=0),
        QuotaCheckFailed(**of("bad"), message=TEXT),
        CWNodePoolQuotaCheckFailed(**of("bad"), uid=again, message=TEXT),
    ]
    assert quota.due == quota.now + MINUTE


def test_a_pool_whose_validation_failed_is_granted_no_more_before_it_is_validated() -> None:
    # given a pool that waits for quota, and whose next version could not be validated
    quota = QuotaService()
    quota.set_limit(2)
    quota.specify("train", 4)
    quota.specify("train", 4, reason=Validated.INTERNAL_ERROR)

    # when the limit is raised before and after the version is validated
    before = quota.set_limit(4)
    quota.set_limit(2)
    quota.specify("train", 4)
    after = quota.set_limit(5)

    under = verdict("train", Quota.UNDER, granted=4, limit=5, used=4, generation=3, number=2)
    assert before == configured(4, granted=0)
    assert after == [*configured(5, granted=0), under]


def test_an_invalid_pool_that_has_nothing_to_give_back_is_not_tried_again() -> None:
    # given a pool that has become invalid and has Nodes
    quota = QuotaService()
    quota.set_limit(2)
    quota.specify("train", 2)
    quota.assign("train", 2)
    quota.specify("train", 2, reason=Validated.INVALID)

    failed = QuotaCheckFailed(**of("train"), message=TEXT)
    state = evolve(quota.state, failed, Context(quota.position, quota.now))

    assert state is quota.state


def test_a_ledger_that_could_not_be_checked_is_tried_again_with_the_first_that_waits() -> None:
    # given that the numbers have changed that the verdict on a pool names that waits
    quota = QuotaService()
    quota.set_limit(4)
    quota.specify("waiting", 5)
    quota.process(specified("train", 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("quota.decide.recheck_pool", None)
        broken = quota.outputs_of(quota.next_wake())
    at_once = quota.wake_until_idle()

    # when a minute has passed
    quota.now += MINUTE
    retried = quota.wake_until_idle()

    text = "internal error while checking quota: TypeError: 'NoneType' object is not callable"
    now = exceeds(5, 4, "1 used by 1 other pool")
    assert broken == [
        QuotaCheckFailed(**of("waiting"), message=text),
        CWNodePoolQuotaCheckFailed(**of("waiting"), uid=uid_of("waiting"), message=text),
    ]
    assert at_once == []
    assert retried == [verdict("waiting", Quota.OVER, granted=0, limit=4, used=1, message=now)]


# What cannot be read.


def unreadable(pool: str) -> Failure:
    """The failure of a version of a NodePool that lacks a field."""
    address = Address("evt", "", ("acme", "prod", pool), "NodePoolValidated")
    return Failure(address, "NodePoolValidated", "data.spec.targetNodes", "is required")


def test_an_input_that_cannot_be_read_names_the_field() -> None:
    quota = QuotaService()
    quota.specify("train", 2)

    outputs = SERVICE.on_failure(quota.state, unreadable("train"))

    text = "internal error while checking quota: data.spec.targetNodes is required"
    assert list(outputs) == [
        QuotaCheckFailed(**of("train"), message=text),
        CWNodePoolQuotaCheckFailed(**of("train"), uid=uid_of("train"), message=text),
    ]


def test_of_a_pool_that_may_be_granted_nothing_no_failure_is_shown_to_users() -> None:
    quota = QuotaService()
    quota.set_limit(2)
    quota.specify("invalid", 2)
    quota.specify("invalid", 2, reason=Validated.INVALID)
    quota.specify("dying", 0)
    quota.hears(deleting("dying"))

    outputs = [
        event
        for pool in ("unknown", "invalid", "dying")
        for event in SERVICE.on_failure(quota.state, unreadable(pool))
    ]

    text = "internal error while checking quota: data.spec.targetNodes is required"
    assert outputs == [QuotaCheckFailed(**of("invalid"), message=text)]
