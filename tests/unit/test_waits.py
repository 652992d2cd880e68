"""Since when a NodePool waits for the machines that it lacks."""

from datetime import UTC, datetime, timedelta

from nodepool.placement.waits import NO_WAIT, Run

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_a_machine_that_never_joined_leaves_its_pool_waiting_since_it_began_to_wait_for_it() -> (
    None
):
    # given a pool that has two machines of its first wait, and lost and replaced a third since
    wait = NO_WAIT.with_grant(3, held=0, now=NOON).trim(0)
    wait = wait.after_loss(held=2, now=NOON + HOUR).trim(0)

    # when one of the two fails to boot
    wait = wait.after_leaving(2, NOON, NOON + 2 * HOUR)

    assert wait.runs == (Run(NOON, 1),)
    assert wait.since == NOON


def test_each_machine_fills_the_earliest_position_that_is_left() -> None:
    # given a pool that waits for three machines since a higher grant, and for one since before
    wait = NO_WAIT.with_grant(2, held=0, now=NOON).fill_position(NOON)
    wait = wait.with_grant(4, held=1, now=NOON + HOUR)
    wait = wait.after_leaving(0, NOON, NOON + 2 * HOUR)

    first = wait.first
    second = wait.fill_position(NOON).first

    assert [first, second] == [NOON, NOON + HOUR]
