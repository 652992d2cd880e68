"""Line plots as SVG, side by side, over the same numbers on a logarithmic axis."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

WIDTH, HEIGHT = 360, 240
"""The size of one plot with its labels."""
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 40, 50
"""What the labels take of it on each side."""
STYLE = """\
<style>
  text { font: 12px sans-serif; fill: #57606a }
  .axis { stroke: #8c959f; fill: none }
  .s0 { stroke: #0969da } .s1 { stroke: #bc4c00 }
  polyline, circle { fill: none; stroke-width: 2 }
  text.s0 { fill: #0969da; stroke: none } text.s1 { fill: #bc4c00; stroke: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #b1bac4 }
    .s0 { stroke: #58a6ff } .s1 { stroke: #f0883e }
    text.s0 { fill: #58a6ff } text.s1 { fill: #f0883e }
  }
</style>
"""


class Series(NamedTuple):
    """A line of a plot, with a value for each number of the axis."""

    name: str
    values: Sequence[float]


def draw(axis: str, numbers: Sequence[int], plots: Mapping[str, Sequence[Series]]) -> str:
    """Return one plot for each title, with its series over these positive numbers."""
    width = WIDTH * len(plots)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}">\n{STYLE}']
    for index, (title, series) in enumerate(plots.items()):
        lines.append(f'<g transform="translate({index * WIDTH} 0)">\n')
        lines += (f"  {line}\n" for line in _draw_plot(axis, numbers, title, series))
        lines.append("</g>\n")
    return "".join((*lines, "</svg>\n"))


def _draw_plot(
    axis: str, numbers: Sequence[int], title: str, series: Sequence[Series]
) -> Iterator[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    top = round_up(max(value for each in series for value in each.values))
    places = [_place(number, numbers) for number in numbers]
    yield f'<text x="{LEFT}" y="16">{title}</text>'
    yield f'<path class="axis" d="M{LEFT} {TOP}V{bottom}H{right}"/>'
    for value in (0, top / 2, top):
        y = _height(value, top)
        yield f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{value:,g}</text>'
    for number, x in zip(numbers, places, strict=True):
        yield f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{number:,}</text>'
    middle = (LEFT + right) // 2
    yield f'<text x="{middle}" y="{HEIGHT - 10}" text-anchor="middle">{axis}</text>'
    for index, each in enumerate(series):
        heights = [_height(value, top) for value in each.values]
        points = " ".join(f"{x},{y}" for x, y in zip(places, heights, strict=True))
        yield f'<polyline class="s{index}" points="{points}"/>'
        for x, y in zip(places, heights, strict=True):
            yield f'<circle class="s{index}" cx="{x}" cy="{y}" r="3"/>'
        label = f'x="{right}" y="{heights[-1] - 8}" text-anchor="end"'
        yield f'<text class="s{index}" {label}>{each.name}</text>'


def round_up(value: float) -> float:
    """Return the next of 1, 2, 4, 5, 8 and 10 times a power of ten: the end of an axis."""
    power = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(step * power for step in (1, 2, 4, 5, 8, 10) if value <= step * power)


def _place(number: int, numbers: Sequence[int]) -> int:
    low, high = math.log10(min(numbers)), math.log10(max(numbers))
    part = (math.log10(number) - low) / (high - low) if high > low else 0.5
    # Room for half a number on both sides.
    return round(LEFT + 24 + part * (WIDTH - LEFT - RIGHT - 48))


def _height(value: float, top: float) -> int:
    return round(HEIGHT - BOTTOM - value / top * (HEIGHT - BOTTOM - TOP))
