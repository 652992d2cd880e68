"""The numbers in a message are those of now; warnings are given for news, not for numbers."""

from nodepool.contract.conditions import Quota
from nodepool.engine.bounds import OUTPUTS_MAX
from unit.quota_service import (
    QuotaService,
    acknowledged,
    configured,
    exceeds,
    limit_of,
    released,
    specified,
    verdict,
    warning,
)


def test_a_limit_that_is_changed_and_still_too_small_is_named_by_the_message_and_a_warning() -> (
    None
):
    quota = QuotaService()
    quota.set_limit(8)
    quota.specify("train", 12)

    raised, lowered = quota.set_limit(10), quota.set_limit(2)

    assert [raised, lowered] == [
        [
            *configured(limit, granted=0),
            verdict(
                "train", Quota.OVER, granted=0, limit=limit, used=0, message=exceeds(12, limit)
            ),
            warning("train", exceeds(12, limit)),
        ]
        for limit in (10, 2)
    ]


def test_what_other_pools_use_is_named_as_it_changes_and_without_another_warning() -> None:
    # given a pool that waits while another uses half of the limit
    quota = QuotaService()
    quota.set_limit(8)
    quota.specify("serve", 4)
    quota.specify("train", 12)

    # when a third comes, and the other gives back a part
    third = quota.specify("batch", 1)
    shrunk = quota.specify("serve", 2)
    given_back = quota.hears(acknowledged("serve", 2, number=2))

    # then the verdict is published again each time the numbers in its message have changed
    five, three = (
        exceeds(12, 8, "5 used by 2 other pools"),
        exceeds(12, 8, "3 used by 2 other pools"),
    )
    assert third == [
        verdict("batch", Quota.UNDER, granted=1, limit=8, used=5),
        verdict("train", Quota.OVER, granted=0, limit=8, used=5, message=five),
    ]
    assert shrunk == [
        verdict("serve", Quota.UNDER, granted=2, limit=8, used=5, generation=2, number=2)
    ]
    assert given_back == [
        released("serve", granted=2, used=3),
        verdict("train", Quota.OVER, granted=0, limit=8, used=3, message=three),
    ]


def test_many_changes_before_a_wake_lead_to_one_new_message() -> None:
    quota = QuotaService()
    quota.set_limit(8)
    quota.specify("train", 12)
    for number in range(5):
        quota.process(specified(f"batch-{number}", 1))

    outputs = quota.wake_until_idle()

    text = exceeds(12, 8, "5 used by 5 other pools")
    assert outputs == [verdict("train", Quota.OVER, granted=0, limit=8, used=5, message=text)]


def test_another_target_that_is_too_large_as_well_is_warned_of() -> None:
    quota = QuotaService()
    quota.set_limit(8)
    quota.specify("train", 12)

    outputs = quota.specify("train", 11)

    text = exceeds(11, 8)
    assert outputs == [
        verdict("train", Quota.OVER, granted=0, limit=8, used=0, generation=2, message=text),
        warning("train", text),
    ]


def test_the_same_lack_is_warned_of_again_after_the_pool_was_within_its_quota() -> None:
    quota = QuotaService()
    quota.set_limit(2)
    quota.specify("train", 4)
    quota.set_limit(4)

    assert warning("train", exceeds(4, 2)) in quota.set_limit(2)


def test_of_a_long_line_the_messages_are_renewed_at_a_bounded_rate() -> None:
    # given 300 pools that wait, and a change of what is used
    quota = QuotaService()
    quota.set_limit(8)
    for number in range(300):
        quota.specify(f"large-{number}", 9)
    newcomer = quota.specify("small", 1)

    # when another follows before they are due
    quota.specify("other", 1)
    quota.now += 2 * quota.tick
    renewed = quota.wake_until_idle()

    # then all are renewed at once, with the numbers of that moment
    text = exceeds(9, 8, "2 used by 2 other pools")
    assert newcomer == [verdict("small", Quota.UNDER, granted=1, limit=8, used=1)]
    assert renewed == [
        verdict(f"large-{number}", Quota.OVER, granted=0, limit=8, used=2, message=text)
        for number in range(300)
    ]


def test_more_messages_than_one_step_holds_are_renewed_in_several() -> None:
    quota = QuotaService()
    quota.set_limit(8)
    for number in range(1_000):
        quota.process(specified(f"large-{number}", 9))

    first = quota.process(limit_of(7))
    rest = quota.wake_until_idle()

    text = exceeds(9, 7)
    assert len(first) == OUTPUTS_MAX
    assert [*first, *rest] == [
        *configured(7, granted=0),
        *(
            event
            for number in range(1_000)
            for event in (
                verdict(f"large-{number}", Quota.OVER, granted=0, limit=7, used=0, message=text),
                warning(f"large-{number}", text),
            )
        ),
    ]
