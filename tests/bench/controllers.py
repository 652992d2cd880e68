"""The controllers of many machines in one process: `python -m bench.controllers 5000`.

Each controller has a port of its own, as a real controller has an address of its own, and answers
the few documents that `metal` reads. With a certificate and its key as further arguments, all
controllers speak TLS. A machine that is powered on has booted at once.
"""

import asyncio
import json
import resource
import ssl
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, cast

import uvloop

from nodepool.local.ports import HOST

SYSTEM: Final = "/redfish/v1/Systems/1"
CHASSIS: Final = "/redfish/v1/Chassis/1"
MEMORY_GIB: Final = 2_048
BACKLOG: Final = 16
OTHER_FILES: Final = 2_000
"""How many files the process has open in addition to the ports."""
RESET: Final = f"{SYSTEM}/Actions/ComputerSystem.Reset"
SESSIONS: Final = "/redfish/v1/SessionService/Sessions"
CREATED, NO_CONTENT, NOT_FOUND = "201 Created", "204 No Content", "404 Not Found"
PARTS: Final[Mapping[str, list[dict[str, str]]]] = {
    "Processors": [
        *({"Id": f"CPU{n}", "ProcessorType": "CPU", "Model": "Xeon"} for n in range(2)),
        *({"Id": f"GPU{n}", "ProcessorType": "GPU", "Model": "H100"} for n in range(8)),
    ],
    "EthernetInterfaces": [{"Id": f"NIC{n}"} for n in range(2)],
    "LogServices/SEL/Entries": [],
}
"""The collections of a system, with the fields that differ for each member."""


def serial_of(number: int) -> str:
    """The serial number of the machine of this number."""
    return f"SN{number:05d}"


def _encode(document: object, status: str = "200 OK", extra: str = "") -> bytes:
    content = json.dumps(document).encode() if document is not None else b""
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{extra}"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


def _link(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def _fixed() -> dict[str, bytes]:
    """The answers that are the same for all machines, by path."""
    found: dict[str, object] = {
        "/redfish/v1/": {"Systems": _link("/redfish/v1/Systems")},
        "/redfish/v1/Systems": {"Members": [_link(SYSTEM)]},
        CHASSIS: {"Thermal": _link(f"{CHASSIS}/Thermal")},
        f"{CHASSIS}/Thermal": {
            "Temperatures": [
                {"Name": f"T{n}", "ReadingCelsius": 40 + n, "UpperThresholdCritical": 90}
                for n in range(10)
            ]
        },
        f"{SYSTEM}/LogServices": {"Members": [_link(f"{SYSTEM}/LogServices/SEL")]},
        f"{SYSTEM}/LogServices/SEL": {
            "Id": "SEL",
            "Entries": _link(f"{SYSTEM}/LogServices/SEL/Entries"),
        },
    }
    health = {"Status": {"State": "Enabled", "Health": "OK"}}
    for name, members in PARTS.items():
        path = f"{SYSTEM}/{name}"
        found[path] = {"Members": [_link(f"{path}/{each['Id']}") for each in members]}
        found |= {f"{path}/{each['Id']}": each | health for each in members}
    return {path: _encode(document) for path, document in found.items()}


FIXED: Final = _fixed()


class Machine:
    """A machine and its controller. received: how many requests its controller has received."""

    def __init__(self, number: int, counts: Counter[str]) -> None:
        self.received = 0
        self._serial = serial_of(number)
        self._counts = counts
        self._is_on = False
        self._boot: dict[str, object] = {}
        self._system = b""
        self._end_boot()

    def answer(self, method: str, path: str, body: bytes) -> bytes:
        """Answer a request, and count it."""
        self.received += 1
        self._counts[_kind_of(method, path)] += 1
        if method == "GET" and path == SYSTEM:
            return self._system
        if method == "GET":
            return FIXED.get(path) or _encode({}, NOT_FOUND)
        if path == SESSIONS:
            extra = f"X-Auth-Token: {self._serial}\r\nLocation: {SESSIONS}/1\r\n"
            return _encode({}, CREATED, extra)
        if method == "PATCH":
            self._boot |= json.loads(body)["Boot"]
            self._show()
        elif path == RESET:
            self._is_on = json.loads(body)["ResetType"] in ("On", "ForceRestart")
            self._end_boot()
        return _encode(None, NO_CONTENT)

    def _end_boot(self) -> None:
        """Forget the boot override, because the machine has booted."""
        self._boot = {
            "BootSourceOverrideEnabled": "Disabled",
            "BootSourceOverrideTarget": "None",
            "BootSourceOverrideMode": "UEFI",
            "HttpBootUri": "",
        }
        self._show()

    def _show(self) -> None:
        """Encode the document of the system as it is now."""
        document = {
            "PowerState": "On" if self._is_on else "Off",
            "BootProgress": {"LastState": "OSRunning" if self._is_on else "None"},
            "SerialNumber": self._serial,
            "Status": {"State": "Enabled", "Health": "OK"},
            "MemorySummary": {
                "TotalSystemMemoryGiB": MEMORY_GIB,
                "Status": {"Health": "OK"},
            },
            "Boot": self._boot,
            "Links": {"Chassis": [_link(CHASSIS)]},
            "Processors": _link(f"{SYSTEM}/Processors"),
            "EthernetInterfaces": _link(f"{SYSTEM}/EthernetInterfaces"),
            "LogServices": _link(f"{SYSTEM}/LogServices"),
            "Actions": {"#ComputerSystem.Reset": {"target": RESET}},
        }
        self._system = _encode(document)


def _kind_of(method: str, path: str) -> str:
    if method == "GET":
        return "system" if path == SYSTEM else "parts"
    return {SESSIONS: "sessions", RESET: "resets"}.get(path, "boots" if method == "PATCH" else "")


class Wire(asyncio.Protocol):
    """One connection to a controller; requests come one after another."""

    def __init__(self, answer: Callable[[str, str, bytes], bytes], counts: Counter[str]) -> None:
        self._answer = answer
        self._counts = counts
        self._transport: asyncio.Transport
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection."""
        # A server over TCP gives its protocols transports for both directions.
        self._transport = cast("asyncio.Transport", transport)
        self._counts["connections"] += 1

    def data_received(self, data: bytes) -> None:
        """Answer each request that is whole."""
        self._buffer += data
        while True:
            head, found, rest = self._buffer.partition(b"\r\n\r\n")
            if not found:
                return
            length = _length_of(head)
            if len(rest) < length:
                return
            method, path, _ = head.split(b" ", 2)
            self._buffer = rest[length:]
            answer = self._answer(method.decode(), path.decode(), rest[:length])
            self._transport.write(answer)


def _length_of(head: bytes) -> int:
    _, _, rest = head.lower().partition(b"\r\ncontent-length:")
    return int(rest.split(b"\r\n", 1)[0]) if rest else 0


async def serve(count: int, tls: ssl.SSLContext | None) -> None:
    """Serve until the process is ended; tell the ports as one line of JSON.

    The first port, without TLS, answers with what has happened since it was last asked: requests
    by kind, connections, and the most requests to one controller.
    """
    loop, counts = asyncio.get_running_loop(), Counter[str]()
    machines = [Machine(number, counts) for number in range(count)]

    def tell(_method: str, _path: str, _body: bytes) -> bytes:
        told = {**counts, "most": max(each.received for each in machines)}
        counts.clear()
        for each in machines:
            each.received = 0
        return _encode(told)

    ports = []
    for answer in (tell, *(each.answer for each in machines)):
        connect = partial(Wire, answer, counts)
        spoken = None if answer is tell else tls
        server = await loop.create_server(connect, HOST, 0, backlog=BACKLOG, ssl=spoken)
        ports.append(server.sockets[0].getsockname()[1])
    print(json.dumps(ports), flush=True)
    await asyncio.Event().wait()


def main() -> None:
    """Serve the number of controllers in the first argument."""
    count, files = int(sys.argv[1]), sys.argv[2:]
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if files else None
    if tls is not None:
        tls.load_cert_chain(*files)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, count + OTHER_FILES), most))
    uvloop.run(serve(count, tls))


if __name__ == "__main__":
    main()
