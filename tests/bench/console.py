"""How soon open pages of the console show a change, and what the console takes for that."""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import uvloop

from bench.load import Work, at_target, drive, envelope, pool, prepare, site
from bench.paint import measure_paint
from bench.scaling import CHANGES_PER_S, ORG, Changing
from bench.table import Line
from bench.tabs import Change, Tab, Visitor, is_closed
from bench.usage import cpu_s, read_memory, waited_s
from nodepool.contract.commands import SetQuota
from testbed.processes import OWNER, ControlPlane

GATEWAY: Final = "gateway.0"
WINDOW: Final = 256
PATIENCE_S: Final = 300.0
LOOK_S: Final = 0.05
TABS: Final = 200
STUCK: Final = 4
"""How many tabs more read nothing."""
SECONDS: Final = 30.0
"""For how long NodePools change: longer than a tab may read nothing."""
SETTLE_S: Final = 5.0
"""How long the first changes may take; the last ones may take three times as long."""
HOT_MAX: Final = 100
"""How many NodePools change, one after the other: as many as one page of the list has room for."""
TIMES: Final = 5
SHAPES: Final = ((1_000, 10), (1, 10_000))
"""How many NodePools there are, and how many Nodes each of them has."""


class Shown(NamedTuple):
    """Tabs that were open while NodePools changed.

    log_ms, model_ms: from each change, when the log has its command and when the read model has its
        result, to the bytes that show the change in each tab that should, sorted.
    missed: how many changes a tab has never shown.
    console, gateway: their part of a core. memory_mb: that of the console.
    waited: for which part of the time the console had no processor, which others had.
    sent_mb: what the tabs got, per second.
    dropped: how many of the `STUCK` tabs were closed. ended: how many of the others.
    first_kb, first_ms: the list with all its files, and the time until the list is there.
    painted: when a browser first shows something of the list, or why that is not known.
    """

    log_ms: Sequence[float]
    model_ms: Sequence[float]
    missed: int
    console: float
    gateway: float
    waited: float
    memory_mb: float
    sent_mb: float
    dropped: int
    ended: int
    first_kb: float
    first_ms: float
    painted: str


def list_lines(_options: argparse.Namespace) -> Iterator[Line]:
    """Yield what `TABS` tabs take beside 10,000 Nodes, in many NodePools and in one."""
    for pools, nodes in SHAPES:
        found = measure_tabs(pools, nodes)
        what = f"{TABS} tabs, {pools:,} NodePools of {nodes:,} Nodes"
        log, model = (_spread(took) for took in (found.log_ms, found.model_ms))
        yield Line(f"{what}, to bytes, ms", f"{log}; from the read model {model}", "p99 500")
        used = f"console {found.console:.2f} and {found.waited:.2f} waiting for others"
        used += f", gateway {found.gateway:.2f}, {found.sent_mb:.1f} MB/s"
        yield Line(f"{what}, cores", used, "console 1")
        yield Line(f"{what}, memory, MB", f"{found.memory_mb:.0f}", "at most 150")
        lost = f"{found.dropped} of {STUCK} stuck, {found.ended} others; {found.missed} changes"
        yield Line(f"{what}, dropped", lost, f"{STUCK}, 0; 0")
        first = f"{found.first_kb:.0f} kB, {found.first_ms:.0f} ms"
        yield Line(f"{what}, first load", first, "150 kB, 100 ms")
        yield Line(f"{what}, first paint, ms", found.painted, "100")


def _spread(took: Sequence[float]) -> str:
    p50, p99 = (took[int(part * len(took))] for part in (0.5, 0.99))
    return f"p50 {p50:.0f}, p99 {p99:.0f}"


def measure_tabs(pools: int, nodes: int, tabs: int = TABS) -> Shown:
    """Open tabs beside `pools` NodePools of `nodes` Nodes each, some of which change."""
    with (
        tempfile.TemporaryDirectory() as folder,
        ControlPlane(Path(folder), processes=2, organisations=(ORG,)) as plane,
    ):
        changing = Changing(plane.server.url, plane.access(), min(pools, HOT_MAX), nodes)
        uvloop.run(_create(plane, pools, nodes))
        with _console(plane, Path(folder)) as (pid, link):
            pids = pid, plane.pid(GATEWAY)
            return uvloop.run(_measure(Visitor(link), changing, list_views(pools, tabs), pids))


async def _create(plane: ControlPlane, pools: int, nodes: int) -> None:
    url, operator = plane.server.url, plane.access()
    # The quota has room for what changes ask for, so that they wait for machines alone.
    commands = [
        each.model_copy(update={"limit": 10 * pools * nodes}) if type(each) is SetQuota else each
        for each in site(pools * nodes)
    ]
    await prepare(url, commands, access=operator)
    messages = [envelope(pool(number, nodes), f"c{number}") for number in range(pools)]
    await drive(url, Work(messages, "nodepools", at_target), WINDOW, access=operator)


@contextmanager
def _console(plane: ControlPlane, folder: Path) -> Iterator[tuple[int, str]]:
    """Yield the process of a console, which has to do with one core, and a link for a user."""
    links = folder / "links"
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
        "NODEPOOL_URL": plane.server.url,
        "NODEPOOL_METRICS_PORT": "-1",
        "NODEPOOL_LOG_FILE": str(folder / "console.log"),
        "NODEPOOL_CONSOLE_PORT": "0",
        "NODEPOOL_CONSOLE_KEYS": str(plane.server.auth.key_file(OWNER, ORG).parents[1]),
        "NODEPOOL_CONSOLE_LINKS": str(links),
    }
    process = subprocess.Popen([sys.executable, "-m", "console"], env=environment)
    try:
        os.sched_setaffinity(process.pid, {max(os.sched_getaffinity(0))})
        link, pause = links / f"{ORG}.{OWNER}", threading.Event()
        ends = time.monotonic() + PATIENCE_S
        while not link.exists():
            if time.monotonic() > ends or process.poll() is not None:
                raise TimeoutError("the console did not start")
            pause.wait(LOOK_S)
        yield process.pid, link.read_text().strip()
    finally:
        process.terminate()
        process.wait()


def list_views(pools: int, tabs: int) -> Sequence[str]:
    """Return what tabs show: three of four a list, with ten filters, the others a NodePool each."""
    lists = [
        *("/nodepools",) * 4,
        *("/nodepools?by=type", "/nodepools?sort=name", "/nodepools?q=pool-0000"),
        *("/nodepools?q=pool-0001", "/events", "/organisation"),
    ]
    return [
        lists[number % len(lists)]
        if number % 4
        else f"/nodepools/prod/pool-{number // 8 % min(pools, HOT_MAX):05d}"
        for number in range(tabs)
    ]


async def _measure(
    visitor: Visitor, changing: Changing, views: Sequence[str], pids: tuple[int, int]
) -> Shown:
    await visitor.sign_in()
    first_kb = await visitor.load("/nodepools") / 1e3
    first_ms = [await _time(visitor) for _ in range(TIMES)]
    painted = await measure_paint(visitor.url("/nodepools"), visitor.cookies)
    async with changing:
        # With a target that they do not reach, these NodePools come first in the list.
        await changing.make(changing.hot)
        await asyncio.sleep(SETTLE_S)
        tabs = await visitor.open_tabs(views)
        stuck = [await visitor.open_stuck("/nodepools") for _ in range(STUCK)]
        used, received = [cpu_s(pid) for pid in pids], sum(tab.received for tab in tabs)
        waited = waited_s(pids[0])
        began = time.monotonic()
        made = await changing.make(int(SECONDS * CHANGES_PER_S))
        seconds = time.monotonic() - began
        waited = (waited_s(pids[0]) - waited) / seconds
        console, gateway = (
            (cpu_s(pid) - before) / seconds for pid, before in zip(pids, used, strict=True)
        )
        received = sum(tab.received for tab in tabs) - received
        await asyncio.sleep(3 * SETTLE_S)
        dropped = sum(await asyncio.gather(*map(is_closed, stuck)))
    log_ms, model_ms, missed = _compare(tabs, made, changing)
    return Shown(
        log_ms,
        model_ms,
        missed,
        console,
        gateway,
        waited,
        read_memory(pids[0]).rss,
        received / seconds / 1e6,
        dropped,
        sum(tab.has_ended.is_set() for tab in tabs),
        first_kb,
        median(first_ms),
        painted,
    )


async def _time(visitor: Visitor) -> float:
    """Return after how many milliseconds the list is there."""
    began = time.perf_counter()
    await visitor.get("/nodepools")
    return (time.perf_counter() - began) * 1e3


def _compare(
    tabs: Sequence[Tab], made: Sequence[Change], changing: Changing
) -> tuple[Sequence[float], Sequence[float], int]:
    """Return the milliseconds from log and read model to the tabs, and how many were missed."""
    log_ms, model_ms, missed = list[float](), list[float](), 0
    for tab in tabs:
        shown = [change for change in made if change in tab.seen]
        log_ms += [max(0.0, tab.seen[each] - changing.stored[each]) * 1e3 for each in shown]
        known = [each for each in shown if each in changing.modelled]
        model_ms += [max(0.0, tab.seen[each] - changing.modelled[each]) * 1e3 for each in known]
        missed += len(made) - len(shown) if tab.view == "/nodepools" else 0
    return sorted(log_ms), sorted(model_ms), missed
