"""A real S3 server, and a way to it that fails as stores do."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal

from bus.harness import until
from nodepool.local.ports import HOST
from nodepool.nats.wire.waiting import until_first
from support.loopback import leading_to, listening, pass_on
from testbed.ports import free_port

WEED = str(Path(sys.executable).with_name("weed"))
BUCKET = "archive"
KEY, SECRET, REGION = "test-key", "test-secret", "us-east-1"
ACTIONS = ["Admin", "Read", "List", "Tagging", "Write"]
Mode = Literal["pass", "fail", "hang", "cut"]
CUT_BYTES = 2_000
"""How many bytes of what a client sends pass before the connection is cut: a part of an upload."""
FAILURE = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
START_S = 60.0


class Way:
    """A way to the S3 server.

    mode: what becomes of connections: they pass, get a 503, get no answer, or are cut.
    asked: how many connections were made.
    server: the URL of the server itself, for whoever looks at the store in any mode.
    """

    def __init__(self, port: int) -> None:
        self.mode: Mode = "pass"
        self.asked = 0
        self.server = f"http://{HOST}:{port}"
        self._port = port
        self._open: set[asyncio.Task[None]] = set()

    def change(self, mode: Mode) -> None:
        """Do something else from now on, also on connections that are open."""
        self.mode = mode
        for task in self._open:
            task.cancel()

    async def lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Lead one connection to the server, or not."""
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        self.asked += 1
        try:
            await self._lead(reader, writer)
        finally:
            self._open.discard(task)

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        match self.mode:
            case "fail":
                await reader.readuntil(b"\r\n\r\n")
                writer.write(FAILURE)
                await writer.drain()
            case "hang":
                await asyncio.Event().wait()
            case "cut" | "pass":
                async with leading_to(self._port) as (there, back):
                    most = CUT_BYTES if self.mode == "cut" else sys.maxsize
                    await until_first(pass_on(reader, back, most), pass_on(there, writer))


@asynccontextmanager
async def object_store(folder: Path) -> AsyncIterator[tuple[Way, Mapping[str, str]]]:
    """An S3 server with a bucket: the way to it, and the environment of programs that use it."""
    identity = {
        "name": "test",
        "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
        "actions": ACTIONS,
    }
    config, data = folder / "s3.json", folder / "s3"
    config.write_text(json.dumps({"identities": [identity]}))
    data.mkdir()
    ports = {name: (free_port(), free_port()) for name in ("s3", "master", "volume", "filer")}
    command = [
        *(WEED, "server", f"-dir={data}", "-s3", f"-s3.config={config}"),
        *(f"-ip={HOST}", f"-ip.bind={HOST}", "-master.volumeSizeLimitMB=64", "-volume.max=20"),
        *(f"-{name}.port={port}" for name, (port, _) in ports.items()),
        *(f"-{name}.port.grpc={port}" for name, (_, port) in ports.items()),
        # Tests run side by side, and these have one port each; and nothing is told to others.
        *("-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false"),
    ]
    s3, master, filer = (ports[name] for name in ("s3", "master", "filer"))
    with (folder / "weed.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
        try:
            await _make_bucket(*(f"{HOST}:{port}.{grpc}" for port, grpc in (master, filer)))
            way = Way(s3[0])
            async with listening(way.lead) as port:
                yield way, environment(f"http://{HOST}:{port}")
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def environment(endpoint: str, secret: str = SECRET) -> dict[str, str]:
    """The environment of a program that uses the store."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_REGION": REGION,
    }


async def _make_bucket(master: str, filer: str) -> None:
    command = [WEED, "shell", f"-master={master}", f"-filer={filer}"]

    async def is_made() -> bool:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(5):
                out, _ = await process.communicate(
                    f"s3.bucket.create -name {BUCKET}\ns3.bucket.list\n".encode()
                )
        except TimeoutError:
            process.kill()
            await process.wait()
            return False
        return f"  {BUCKET}".encode() in out

    await until(is_made, START_S)
