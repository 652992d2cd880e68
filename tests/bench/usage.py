"""What processes use of the processor and of the memory, as Linux shows it."""

import os
from pathlib import Path
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")


class Memory(NamedTuple):
    """The memory of a process in MB.

    rss: all pages that the process has in memory.
    pss: the same, but a page that several processes share counts once for all of them together.
    """

    rss: float
    pss: float

    def __str__(self) -> str:
        return f"{self.rss:.0f} RSS, {self.pss:.0f} PSS"


def read_memory(*pids: int) -> Memory:
    """Return the memory of some processes together."""
    found = [_parse_memory(Path(f"/proc/{pid}/smaps_rollup").read_text("ascii")) for pid in pids]
    return Memory(sum(each.rss for each in found), sum(each.pss for each in found))


def _parse_memory(text: str) -> Memory:
    kib = {line.split()[0]: int(line.split()[1]) for line in text.splitlines()[1:]}
    return Memory(kib["Rss:"] / 1024, kib["Pss:"] / 1024)


def cpu_s(pid: int) -> float:
    """Return the processor time of a process in hundredths of a second, with ended threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def waited_s(pid: int) -> float:
    """Return for how long the main thread of a process was ready and had no processor."""
    return int(Path(f"/proc/{pid}/schedstat").read_text("ascii").split()[1]) / 1e9


def thread_cpu_s(pid: int | None) -> float:
    """Return the processor time of the threads that a process has now, to the nanosecond."""
    times = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(path.read_text("ascii").split()[0]) for path in times) / 1e9
