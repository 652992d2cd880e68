"""What a program does not do again at once, by a clock that the test drives."""

from nodepool.kube.pacing import Pauses


def test_a_key_is_repeated_after_its_pause_and_others_at_any_time() -> None:
    pauses: Pauses[str] = Pauses(9)
    before = pauses.is_over("a", 0.0)

    pauses.begin("a", 2.0, "refused")

    assert [before, *(pauses.is_over("a", now) for now in (1.9, 2.0))] == [True, False, True]
    assert (pauses.ends_at("a"), pauses.cause("a")) == (2.0, "refused")
    assert (pauses.is_over("b", 0.0), pauses.cause("b")) == (True, "")


def test_a_key_that_is_gone_has_no_pause() -> None:
    pauses: Pauses[str] = Pauses(9)
    pauses.begin("a", 2.0, "refused")

    pauses.forget("a")

    assert (pauses.is_over("a", 0.0), pauses.cause("a")) == (True, "")


def test_beyond_the_most_keys_the_oldest_pause_is_forgotten() -> None:
    pauses: Pauses[str] = Pauses(2)
    for key in ("a", "b", "a", "c"):
        pauses.begin(key, 2.0)

    assert [pauses.is_over(key, 0.0) for key in ("a", "b", "c")] == [False, True, False]
