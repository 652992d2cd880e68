"""The problems for which a Node was rebooted, as the lifecycle service keeps and publishes them."""

from datetime import UTC, datetime, timedelta

from lifecycle.health import Health, Problem
from nodepool.contract.reboots import RebootedFor

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_a_reboot_may_cure_what_began_before_it_ended() -> None:
    # given a Node that was rebooted before, and reboots again for another problem
    deadlock, xid = Problem("KernelDeadlock", NOON), Problem("XIDErrors", NOON)
    begun = Health((deadlock,), cures=(("XIDErrors", NOON),)).begin_reboot()

    # when both problems last when it has rebooted, one of them since the reboot began
    ended = begun._replace(problems=(deadlock, xid)).end_reboot(NOON + HOUR)

    assert begun.rebooted_for == (RebootedFor(type="XIDErrors", ended=NOON),)
    assert ended.rebooted_for == (
        RebootedFor(type="KernelDeadlock", ended=NOON + HOUR),
        RebootedFor(type="XIDErrors", ended=NOON + HOUR),
    )


def test_a_problem_that_is_over_keeps_the_end_of_its_own_reboot() -> None:
    health = Health(cures=(("XIDErrors", NOON),))

    assert health.end_reboot(NOON + HOUR).rebooted_for == health.rebooted_for
