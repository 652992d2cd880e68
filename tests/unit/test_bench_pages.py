"""The table that a benchmark writes."""

from pathlib import Path

from bench.table import Line, Machine, format_line, format_run, write_part

MACHINE = Machine("28 November 2026", "EPYC", 2, 24, "3.11.7", "2.15.1")


def test_the_table_of_a_run_says_where_it_was_made_and_names_what_was_not_measured() -> None:
    lines = [
        Line("pipeline / bare pipeline", "0.50 (0.49 to 0.52)", "at least 0.60"),
        Line("a large Kubernetes", "not measured: no API server"),
    ]

    assert (
        format_run(MACHINE, 3, lines)
        == """
28 November 2026, 2 cores of EPYC, 24 GB, Python 3.11.7, nats-server 2.15.1. \
Lines of several runs, here 3: median (lowest to highest).

| What | Result | Budget |
| --- | --- | --- |
| pipeline / bare pipeline | 0.50 (0.49 to 0.52) | at least 0.60 |
| a large Kubernetes | not measured: no API server |  |

"""
    )


def test_a_line_shows_its_budget_if_it_has_one() -> None:
    assert [format_line(Line("a", "1")), format_line(Line("b", "2", "at most 3"))] == [
        f"{'a':<64} 1",
        f"{'b':<64} 2   (budget: at most 3)",
    ]


def test_a_run_replaces_what_the_page_has_between_its_marks_and_nothing_else(
    tmp_path: Path,
) -> None:
    page = tmp_path / "README.md"
    page.write_text("# A\n<!-- <measured> -->\nold\n<!-- </measured> -->\n## µ\n", "utf-8")

    write_part(page, "measured", "\nnew\n")

    expected = "# A\n<!-- <measured> -->\n\nnew\n<!-- </measured> -->\n## µ\n"
    assert page.read_text("utf-8") == expected
