"""A part of a file between two marks is written, and nothing else of the file."""

import pytest

from manifests.marks import fill

TEXT = "a: 1\n  # <names> made\n  - old\n  # </names>\nb: 2\n  # <names> made\n  # </names>\n"


def test_a_part_takes_the_place_of_what_is_between_its_marks_wherever_they_are() -> None:
    expected = TEXT.replace("  - old\n", "").replace("made\n", "made\n  - new\\1\n")

    assert fill(TEXT, {"names": "  - new\\1\n"}) == expected


def test_a_file_that_is_fresh_stays_as_it_is() -> None:
    once = fill(TEXT, {"names": "  - new\n"})

    assert fill(once, {"names": "  - new\n"}) == once


@pytest.mark.parametrize("text", ["", "# <names>\n", "# </names>\n# <names>\n"])
def test_a_file_without_both_marks_of_a_part_is_refused(text: str) -> None:
    with pytest.raises(LookupError, match="<names>"):
        fill(text, {"names": "- new\n"})
