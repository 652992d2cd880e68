"""When the driver of real machines reads a machine completely again."""

from metal.host.term import Polled


def test_machines_that_were_first_read_together_are_not_read_completely_together_again() -> None:
    one, other = Polled(), Polled()

    one.note_complete(1_000.0, age_s=20.0)
    other.note_complete(1_000.0, age_s=290.0)

    assert (one.complete_at, other.complete_at) == (980.0, 710.0)


def test_each_later_complete_reading_counts_from_its_moment() -> None:
    polled = Polled()
    polled.note_complete(1_000.0, age_s=290.0)

    polled.note_complete(1_010.0, age_s=20.0)

    assert polled.complete_at == 1_010.0


def test_the_first_reading_of_another_controller_counts_as_a_first_one() -> None:
    polled = Polled()
    polled.note_complete(1_000.0, age_s=0.0)
    polled.forget()

    polled.note_complete(1_100.0, age_s=150.0)

    assert polled.complete_at == 950.0
