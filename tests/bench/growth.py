"""How the cost of a Node grows with the number of Nodes: a table and a plot for the page."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.pipeline import create_pools, create_probe
from bench.plot import Series, draw
from bench.table import Machine, format_table, write_part
from nodepool.engine.waiting import WAITING_MAX
from testbed.processes import ControlPlane

OF_POOL = 10
"""How many Nodes each NodePool has."""
PATIENCE_S, SLOWEST_PER_S = 120.0, 50.0
"""How long a run may take: this many seconds, and the rest at so many Nodes in each second."""
FOLDER = Path(__file__).parents[2] / "deploy"
PAGE, PLOT = FOLDER / "SCALING.md", FOLDER / "growth.svg"
HEAD = (
    "Nodes",
    "NodePools",
    "Seconds",
    "Nodes per second",
    "CPU of the services per Node, µs",
    "CPU of the server per Node, µs",
    "Restart after SIGKILL, s",
)


class Growth(NamedTuple):
    """NodePools from nothing until all of them have all their Nodes.

    services_us, server_us: the processor time per Node, in microseconds.
    restart_s: from SIGKILL of all services until a new NodePool has all its verdicts.
    """

    nodes: int
    seconds: float
    services_us: float
    server_us: float
    restart_s: float

    @property
    def rate(self) -> float:
        """Nodes per second."""
        return self.nodes / self.seconds


def measure_growth(sizes: Sequence[int]) -> Iterator[Growth]:
    """Yield what it takes to create each of these numbers of Nodes, on a new control plane."""
    for size in sizes:
        pools = max(1, size // OF_POOL)
        nodes, patience_s = pools * OF_POOL, PATIENCE_S + size / SLOWEST_PER_S
        with (
            tempfile.TemporaryDirectory() as folder,
            ControlPlane(Path(folder), processes=2) as plane,
        ):
            run = create_pools(plane, pools, OF_POOL, min(pools, WAITING_MAX), patience_s)
            for name in plane.names:
                plane.kill(name)
            restart_s = create_probe(plane, pools + 1, patience_s)
        services_us, server_us = run.services_cpu_s / nodes * 1e6, run.server_cpu_s / nodes * 1e6
        yield Growth(nodes, run.seconds, services_us, server_us, restart_s)


def write_growth(machine: Machine, found: Sequence[Growth]) -> None:
    """Write the table into the page, and the plot beside it."""
    PLOT.write_text(plot_growth(found), encoding="utf-8")
    write_part(PAGE, "growth", format_growth(machine, found))


def format_growth(machine: Machine, found: Sequence[Growth]) -> str:
    """Return the table, under a sentence that says where and when it was measured, and the plot."""
    rows = [
        (
            f"{each.nodes:,}",
            f"{each.nodes // OF_POOL:,}",
            f"{each.seconds:.1f}",
            f"{each.rate:,.0f}",
            f"{each.services_us:,.0f}",
            f"{each.server_us:,.0f}",
            f"{each.restart_s:.1f}",
        )
        for each in found
    ]
    return (
        f"\n{machine}. One run for each line.\n\n{format_table(HEAD, rows)}\n"
        f"![Nodes per second and processor time per Node, by the number of Nodes]({PLOT.name})\n\n"
    )


def plot_growth(found: Sequence[Growth]) -> str:
    """Return the plot as SVG: how fast Nodes come, and what each of them costs."""
    nodes = [each.nodes for each in found]
    return draw(
        "Nodes (log scale)",
        nodes,
        {
            "Nodes per second": [Series("all together", [each.rate for each in found])],
            "CPU per Node, µs": [
                Series("services", [each.services_us for each in found]),
                Series("server", [each.server_us for each in found]),
            ],
        },
    )
