"""The numbers in a message are those of now; warnings are given for news, not for numbers."""

from nodepool.contract.conditions import Quota
from nodepool.contract.events import CWOverQuota
from nodepool.engine.bounds import OUTPUTS_MAX
from unit.quota_service import (
    QuotaService,
    acknowledged,
    assigned,
    configured,
    exceeds,
    limit_of,
    released,
    reserved,
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


def test_of_a_long_line_a_node_that_comes_back_renews_no_message_of_others_at_once() -> None:
    # given 300 pools that wait, and a pool that waits with a Node away that another one replaced
    quota = QuotaService()
    quota.set_limit(8)
    quota.specify("small", 8)
    quota.hears(assigned("small", 1))
    quota.hears(reserved("small", 1, usable=False))
    quota.hears(*(assigned("small", number) for number in range(2, 10)))
    for number in range(300):
        quota.specify(f"large-{number}", 9)
    quota.specify("small", 12)

    # when that Node comes back
    outputs = quota.hears(reserved("small", 1, usable=True))

    # then only its own pool is judged
    text = (
        f"{exceeds(12, 8)}; the control plane gave back 1 Node beyond the grant of the NodePool, "
        "which scales down to 8 by its scaleDownStrategy"
    )
    assert outputs == [
        verdict(
            *("small", Quota.OVER), granted=8, limit=8, used=9, generation=2, message=text, beyond=1
        )
    ]


def test_a_verdict_with_other_numbers_is_no_further_grant() -> None:
    # given a grant that shrank with the limit, which the allocator has not read of
    quota = QuotaService()
    quota.set_limit(4)
    quota.specify("train", 4)
    quota.set_limit(2)
    before = quota.state

    # when the limit changes and is then what it was
    quota.set_limit(3)
    quota.set_limit(2)

    # then there is still one grant for the allocator to acknowledge
    assert quota.state == before


def test_a_warning_that_did_not_fit_the_step_of_its_verdict_is_given_in_the_next() -> None:
    # given 500 pools that wait, and one that a higher limit serves
    quota = QuotaService()
    quota.set_limit(8)
    for number in range(500):
        quota.process(specified(f"large-{number}", 20))
    quota.process(specified("small", 9))
    quota.wake_until_idle()

    first = quota.process(limit_of(9))
    rest = quota.wake_until_idle()

    # then the first step ends between a verdict and its warning
    text = exceeds(20, 9, "9 used by 1 other pool")
    assert len(first) == OUTPUTS_MAX
    assert isinstance(rest[0], CWOverQuota)
    assert [*first, *rest] == [
        *configured(9, granted=0),
        verdict("small", Quota.UNDER, granted=9, limit=9, used=9, number=2),
        *(
            event
            for number in range(500)
            for event in (
                verdict(f"large-{number}", Quota.OVER, granted=0, limit=9, used=9, message=text),
                warning(f"large-{number}", text),
            )
        ),
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
