"""Starts the parts of the cell, each a process: a server, services, and an archiver that trims."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from faults.processes import Process
from nodepool.contract.services import PROCESSES
from nodepool.local.binary import find_server
from nodepool.local.config import MAX_PAYLOAD, QUEUE_MAX
from nodepool.local.ports import HOST
from testbed.ports import free_port

MB = 1_000_000


@dataclass(frozen=True)
class Sizes:
    """The size of the cell, and the settings of an operator for it.

    disk: the bytes of the disk.
    store: `max_file_store` of the server; the rest is for what it has not removed yet.
    nodes: how many there are, about.
    messages: how many are stored at least.
    keep: the newest bytes of the log that are kept.
    keep_s, delay_s: how long messages are kept, and how long a floor is known before.
    segment: the bytes of a segment.
    snapshot_after, held: after how many positions and bytes a service saves a snapshot, at the
      latest.
    fill_per_s: how many bytes of large commands come each second while the archiver is away.
    between_s: the shortest and the longest time between two kills.
    """

    disk: int
    store: int
    nodes: int
    messages: int
    keep: int
    keep_s: int
    delay_s: int
    segment: int
    snapshot_after: int
    held: int
    fill_per_s: int
    between_s: tuple[float, float]


def large(messages: int, nodes: int = 10_000, disk: int = 1_000 * MB) -> Sizes:
    """Return the settings of deploy/RETENTION.md for a disk, but for shorter times."""
    return Sizes(
        disk=disk,
        store=disk * 3 // 4,
        nodes=nodes,
        messages=messages,
        keep=disk // 4,
        keep_s=60,
        delay_s=10,
        segment=64 << 20,
        snapshot_after=50_000,
        held=64 << 20,
        fill_per_s=8 * MB,
        between_s=(15, 40),
    )


def small(messages: int) -> Sizes:
    """Return smaller sizes, with which a run takes a minute or two."""
    return Sizes(
        disk=64 * MB,
        store=32 * MB,
        nodes=60,
        messages=messages,
        keep=8 * MB,
        keep_s=2,
        delay_s=1,
        segment=MB,
        snapshot_after=500,
        held=MB,
        fill_per_s=MB,
        between_s=(2, 5),
    )


SERVICES = """\
import sys
from nodepool.host import log_growth, snapshots
snapshots.SNAPSHOT_AFTER, log_growth.HELD_BYTES = int(sys.argv.pop(1)), int(sys.argv.pop(1))
from nodepool.host.__main__ import _run
_run(sys.argv[1:])
"""
"""Runs services that save snapshots as often as a small disk needs."""


class Parts:
    """The processes of a cell; making it starts no process."""

    def __init__(self, folder: Path, disk: Path, sizes: Sizes) -> None:
        port = free_port()
        self.url, self.archive = f"nats://{HOST}:{port}", folder / "archive"
        self.metrics = f"http://{HOST}:{free_port()}/metrics"
        self._folder, self._sizes = folder, sizes
        self.server = self._server(port, disk)
        self.services = [
            self._services(number, names) for number, names in enumerate(PROCESSES[2], 1)
        ]
        self.archiver = self._archiver()

    @property
    def every(self) -> Sequence[Process]:
        """Return all processes."""
        return (self.server, *self.services, self.archiver)

    def _server(self, port: int, disk: Path) -> Process:
        config = self._folder / "nats-server.conf"
        config.write_text(
            f"""server_name: cell
listen: "{HOST}:{port}"
max_payload: {MAX_PAYLOAD}
jetstream {{
  store_dir: {json.dumps(str(disk))}
  sync_interval: always
  max_buffered_msgs: {QUEUE_MAX}
  max_memory_store: 64MiB
  max_file_store: {self._sizes.store}
}}
""",
            encoding="utf-8",
        )
        binary = find_server(os.environ.get("NODEPOOL_NATS_SERVER"))
        command = [str(binary), "--config", str(config)]
        return Process("server", command, self._folder / "server.log", {})

    def _services(self, number: int, names: Sequence[str]) -> Process:
        sizes = self._sizes
        numbers = str(sizes.snapshot_after), str(sizes.held)
        port = self.metrics.split(":")[2].partition("/")[0]
        own = {
            "NODEPOOL_MAX_FILE_STORE": str(sizes.store),
            "NODEPOOL_METRICS_PORT": port if "aggregator" in names else "-1",
            "NODEPOOL_LOG_FILE": str(self._folder / f"{{service}}.{number}.log"),
        }
        command = [sys.executable, "-c", SERVICES, *numbers, *names]
        return self._process(f"services-{number}", command, own)

    def _archiver(self) -> Process:
        sizes = self._sizes
        own = {
            "NODEPOOL_LOG_FILE": str(self._folder / "archiver.log"),
            "NODEPOOL_ARCHIVE": str(self.archive),
            "NODEPOOL_ARCHIVE_SEGMENT_BYTES": str(sizes.segment),
            "NODEPOOL_TRIM": "on",
            "NODEPOOL_TRIM_KEEP_SECONDS": str(sizes.keep_s),
            "NODEPOOL_TRIM_KEEP_BYTES": str(sizes.keep),
            "NODEPOOL_TRIM_DELAY_SECONDS": str(sizes.delay_s),
        }
        return self._process("archiver", [sys.executable, "-m", "archiver"], own)

    def _process(self, name: str, command: Sequence[str], own: dict[str, str]) -> Process:
        path = os.pathsep.join(sys.path)
        environment = {"PYTHONPATH": path, "NODEPOOL_URL": self.url, **own}
        return Process(name, command, self._folder / f"{name}.err", environment)
