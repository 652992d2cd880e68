"""The problems for which a Node was rebooted, as lifecycle and the read model keep them."""

from datetime import UTC, datetime, timedelta

from nodepool.contract.health import begin_cures, end_cures

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_a_reboot_may_cure_what_began_before_it_ended() -> None:
    # given a Node that was rebooted before, and reboots again for another problem
    begun = begin_cures((("XIDErrors", NOON),), ["KernelDeadlock"])

    # when both problems last when it has rebooted, one of them since the reboot began
    ended = end_cures(begun, ["KernelDeadlock", "XIDErrors"], NOON + HOUR)

    assert begun == (("KernelDeadlock", None), ("XIDErrors", NOON))
    assert ended == (("KernelDeadlock", NOON + HOUR), ("XIDErrors", NOON + HOUR))


def test_a_problem_that_is_over_keeps_the_end_of_its_own_reboot() -> None:
    assert end_cures((("XIDErrors", NOON),), [], NOON + HOUR) == (("XIDErrors", NOON),)
