"""Where the processor time of the services goes: their processes run under a profiler."""

import argparse
import atexit
import json
import os
import runpy
import tempfile
import time
from collections.abc import Iterator, Sequence
from cProfile import Profile
from pathlib import Path
from types import CodeType
from typing import Final, NamedTuple

from bench.pipeline import create_pools
from bench.table import Line
from nodepool.engine.waiting import WAITING_MAX
from testbed.processes import ControlPlane

SHOWN_MIN: Final = 0.01
"""The smallest share that is shown."""
FOLDER: Final = "BENCH_PROFILES"
"""The variable of the environment with the folder into which a process writes its times."""
ROOMS: Final = (("/services/", ""), ("/shared/nodepool/", "nodepool."), ("/site-packages/", ""))
"""Folders whose subfolders are parts of their own, and what the names of these begin with."""


class Part(NamedTuple):
    """A part of the code, and its share in the processor time of all services, from 0 to 1."""

    name: str
    share: float


def list_lines(options: argparse.Namespace) -> Iterator[Line]:
    """Measure the parts of the code, and yield the line that shows them."""
    parts = profile_services(options.pools, options.nodes, min(options.pools, WAITING_MAX))
    shown = ", ".join(f"{each.name} {each.share:.0%}" for each in parts if each.share >= SHOWN_MIN)
    what = f"{options.pools:,} pools of {options.nodes} Nodes, CPU of the services by part"
    yield Line(what, shown)


def profile_services(pools: int, nodes: int, window: int) -> Sequence[Part]:
    """Return the parts of the code, largest first, while NodePools get all their Nodes.

    The profiler adds about as much to each call of a function as a short function takes, so a part
    of many short functions looks larger than it is. Starting and stopping is part of the time.
    """
    found = dict[str, float]()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as profiles:
        settings = {FOLDER: profiles}
        with ControlPlane(Path(folder), settings=settings, processes=2, program=__name__) as plane:
            create_pools(plane, pools, nodes, window)
        for file in Path(profiles).iterdir():
            for name, seconds in json.loads(file.read_bytes()):
                found[name] = found.get(name, 0.0) + seconds
    whole = sum(found.values())
    parts = (Part(name, seconds / whole) for name, seconds in found.items())
    return sorted(parts, key=lambda part: part.share, reverse=True)


def _list_times(profile: Profile) -> Iterator[tuple[str, float]]:
    """Yield the part and the own time of each function, in seconds.

    What a function that is written in C takes is part of the time of its callers.
    """
    for entry in profile.getstats():
        if isinstance(entry.code, CodeType):
            built_in = (each for each in entry.calls or () if isinstance(each.code, str))
            yield _part_of(entry.code), entry.inlinetime + sum(each.inlinetime for each in built_in)


def _part_of(code: CodeType) -> str:
    for room, prefix in ROOMS:
        _, found, rest = code.co_filename.rpartition(room)
        if found:
            return prefix + rest.partition("/")[0].removesuffix(".py")
    return "generated" if code.co_filename.startswith("<") else "standard library"


def _run() -> None:
    """Run the services that the command line names, and write their times when they end."""
    profile = Profile(time.thread_time)

    def write() -> None:
        profile.disable()
        times = json.dumps(list(_list_times(profile)))
        Path(os.environ[FOLDER], f"{os.getpid()}.json").write_text(times)

    atexit.register(write)
    profile.enable()
    runpy.run_module("nodepool.host", run_name="__main__")


if __name__ == "__main__":
    _run()
