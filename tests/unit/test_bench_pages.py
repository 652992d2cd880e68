"""The tables and the plot that a benchmark writes."""

from pathlib import Path

import pytest

from bench.growth import Growth, format_growth, plot_growth
from bench.machines import Rest, format_machines
from bench.plot import round_up
from bench.table import Line, Machine, format_line, format_run, write_part

MACHINE = Machine("28 November 2026", "EPYC", 2, 24, "3.11.7", "2.15.1")
FOUND = [Growth(1_000, 0.8, 1_200.4, 240.0, 1.25), Growth(100_000, 125.0, 1_500.0, 250.0, 4.0)]


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


def test_the_table_of_growth_has_a_line_for_each_size_and_the_plot_under_it() -> None:
    assert (
        format_growth(MACHINE, FOUND)
        == """
28 November 2026, 2 cores of EPYC, 24 GB, Python 3.11.7, nats-server 2.15.1. One run for each line.

| Nodes | NodePools | Seconds | Nodes per second | CPU of the services per Node, µs \
| CPU of the server per Node, µs | Restart after SIGKILL, s |
| --- | --- | --- | --- | --- | --- | --- |
| 1,000 | 100 | 0.8 | 1,250 | 1,200 | 240 | 1.2 |
| 100,000 | 10,000 | 125.0 | 800 | 1,500 | 250 | 4.0 |

![Nodes per second and processor time per Node, by the number of Nodes](growth.svg)

"""
    )


def test_the_table_of_real_machines_has_a_line_for_each_run() -> None:
    requests = {"system": 2.0, "parts": 3.72}
    messages = {"ControllerSilent": 0.5, "ControllerReported": 0.75}
    found = [
        Rest(500, False, 5.04, requests, 2.0, 19.0, 2.14, 0.5, 101.6, {}, 7.31),
        Rest(5_000, True, 40.0, requests, 2.0, 19.0, 4.0, 0.05, 233.0, messages, 9.0),
    ]

    assert (
        format_machines(MACHINE, found)
        == """
28 November 2026, 2 cores of EPYC, 24 GB, Python 3.11.7, nats-server 2.15.1. One run for each line.

| Machines | TLS | Added, s | Requests per minute | CPU of `metal`, ms | CPU of the server, ms \
| Memory of `metal`, MB | Messages per hour | 500 boot, s |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
| 500 | no | 5.0 | 5.7 | 2.1 | 0.50 | 102 | 0.00 | 7.3 |
| 5,000 | yes | 40.0 | 5.7 | 4.0 | 0.05 | 233 | 1.25 | 9.0 |

"""
    )


def test_the_plot_of_growth_has_one_plot_for_the_rate_and_one_for_the_cost() -> None:
    head, _, drawn = plot_growth(FOUND).partition("</style>\n")

    assert head.startswith('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 240">\n')
    assert "prefers-color-scheme: dark" in head
    assert drawn == DRAWN


def test_a_single_size_is_drawn_in_the_middle() -> None:
    assert '<circle class="s0" cx="200" cy="96" r="3"/>' in plot_growth(FOUND[:1])


@pytest.mark.parametrize(
    ("value", "end"), [(0, 1), (0.7, 0.8), (1, 1), (1_001, 2_000), (4_100, 5_000), (8_001, 10_000)]
)
def test_an_axis_ends_at_a_round_number(value: float, end: float) -> None:
    assert round_up(value) == end


DRAWN = """\
<g transform="translate(0 0)">
  <text x="60" y="16">Nodes per second</text>
  <path class="axis" d="M60 40V190H340"/>
  <text x="54" y="194" text-anchor="end">0</text>
  <text x="54" y="119" text-anchor="end">1,000</text>
  <text x="54" y="44" text-anchor="end">2,000</text>
  <text x="84" y="208" text-anchor="middle">1,000</text>
  <text x="316" y="208" text-anchor="middle">100,000</text>
  <text x="200" y="230" text-anchor="middle">Nodes (log scale)</text>
  <polyline class="s0" points="84,96 316,130"/>
  <circle class="s0" cx="84" cy="96" r="3"/>
  <circle class="s0" cx="316" cy="130" r="3"/>
  <text class="s0" x="340" y="122" text-anchor="end">all together</text>
</g>
<g transform="translate(360 0)">
  <text x="60" y="16">CPU per Node, µs</text>
  <path class="axis" d="M60 40V190H340"/>
  <text x="54" y="194" text-anchor="end">0</text>
  <text x="54" y="119" text-anchor="end">1,000</text>
  <text x="54" y="44" text-anchor="end">2,000</text>
  <text x="84" y="208" text-anchor="middle">1,000</text>
  <text x="316" y="208" text-anchor="middle">100,000</text>
  <text x="200" y="230" text-anchor="middle">Nodes (log scale)</text>
  <polyline class="s0" points="84,100 316,78"/>
  <circle class="s0" cx="84" cy="100" r="3"/>
  <circle class="s0" cx="316" cy="78" r="3"/>
  <text class="s0" x="340" y="70" text-anchor="end">services</text>
  <polyline class="s1" points="84,172 316,171"/>
  <circle class="s1" cx="84" cy="172" r="3"/>
  <circle class="s1" cx="316" cy="171" r="3"/>
  <text class="s1" x="340" y="163" text-anchor="end">server</text>
</g>
</svg>
"""
