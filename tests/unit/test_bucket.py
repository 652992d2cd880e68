"""A token bucket: a burst at once, and then a rate."""

from nodepool.state.bucket import Bucket


def test_a_bucket_lets_a_burst_pass_and_says_how_long_to_wait_for_the_next() -> None:
    bucket = Bucket(4, 2, 0.0)

    assert [bucket.take(0.0) for _ in range(4)] == [0, 0, 0.25, 0.25]
    assert [bucket.take(10.0) for _ in range(3)] == [0, 0, 0.25]


def test_a_bucket_in_debt_makes_each_wait_for_those_before_it() -> None:
    bucket = Bucket(4, 2, 0.0)

    assert [bucket.owe(0.0) for _ in range(4)] == [0, 0, 0.25, 0.5]
    assert [bucket.owe(10.0) for _ in range(3)] == [0, 0, 0.25]
