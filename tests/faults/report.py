"""What a run has shown, and what is kept of one that shows a fault."""

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nodepool.contract.log import Entry


@dataclass
class Report:
    """What a run has shown.

    violations: what is wrong; empty for a run in which every promise was kept.
    faults: how often each kind of fault happened.
    kept: where the log lies of a run with violations.
    """

    seed: int
    messages: int = 0
    commands: int = 0
    retries: int = 0
    restarts: int = 0
    memory_mb: int = 0
    quiet_after_s: float = 0.0
    faults: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    kept: str = ""

    def lines(self) -> Iterator[str]:
        """The report for people."""
        for name, value in vars(self).items():
            if name not in ("faults", "violations", "kept"):
                yield f"{name:<14}{value:>10}"
        for name, count in sorted(self.faults.items()):
            yield f"{name:<16}{count:>8}"
        yield from self.violations or ["nothing is lost, doubled or otherwise wrong"]
        if self.kept:
            yield f"its log, and those of all processes, lie in {self.kept}"


def keep(entries: Sequence[Entry], logs: Path) -> str:
    """Writes a log to a file, one message a line, and copies those of processes; their folder."""
    folder = Path(tempfile.mkdtemp(prefix="nodepool-faults-"))
    with (folder / "stream.log").open("w", encoding="utf-8") as file:
        for entry in entries:
            content = entry.content.decode(errors="backslashreplace")
            headers = json.dumps(dict(entry.headers))
            moment = entry.time.isoformat()
            file.write(f"{entry.position} {moment} {entry.subject} {headers} {content}\n")
    for path in (*logs.glob("*.log*"), *logs.glob("*/server.log")):
        shutil.copy(path, folder / "-".join(path.relative_to(logs).parts))
    return str(folder)
