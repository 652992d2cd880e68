"""What stands in front of an emulated machine: sessions, faults, and the record of an auditor."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import aiohttp
from aiohttp import web

from metal.inventory.inventory import Place
from metal.inventory.model import Reference
from nodepool.local.ports import HOST
from redfish.emulator import Emulated
from testbed.ports import free_port

USER = "steward"
PASSWORD = "correct-horse"
TOKEN = "battery-staple-"
VARIABLE = "BMC_LOGIN"
ENVIRONMENT = {VARIABLE: f"{USER}:{PASSWORD}"}
BASIC = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
SECRETS = (USER, PASSWORD, TOKEN, BASIC)
SESSIONS = "/redfish/v1/SessionService/Sessions"
DRIP_S = 0.02
LOCKED_MAX = 20
"""How often a request is sent to the emulator again because its database was locked."""

Document = dict[str, Any]
Change = Callable[[Document], object]


@dataclass
class Front:
    """A controller with a fault, in front of an emulated machine.

    password, has_sessions: what it asks for. token: of its sessions.
    held: requests for a path that ends so are not answered until `let_go`.
    status, location: what requests for a path that ends so are answered with, in place of an
        answer, and where that sends them.
    breaks_before, breaks_after: methods at which it hangs up, before or after it has acted.
    content: the bytes that it sends as the answer to a path that ends so.
    drips: whether content is sent one byte after another.
    documents: documents that the emulator does not have, by path.
    changes: what becomes of the document of a path that ends so.
    forgets_boot: whether it accepts a boot override and does not keep it.
    refuses_boot: whether it refuses a boot override, and quotes it.
    version: of its system, which a change has to name; a weak one matches no change that names it.
    received: each request, as method and path; connections: what they came through.
    resets: each reset that arrived; arrivals: when; carried_out: each that reached the machine;
        effects: which of those that arrived these were, counted from 0. One that nobody waits for
        is carried out too.
    tokens: the sessions that are open.
    delay_s: how long it takes for each answer.
    holding: how many requests it has held so far.
    acted: called with each reset that has reached the machine.
    """

    machine: Emulated
    port: int = field(default_factory=free_port)
    scheme: str = "http"
    password: str = PASSWORD
    has_sessions: bool = True
    token: str = TOKEN
    held: set[str] = field(default_factory=set)
    status: dict[str, int] = field(default_factory=dict)
    location: str = ""
    breaks_before: set[str] = field(default_factory=set)
    breaks_after: set[str] = field(default_factory=set)
    content: dict[str, bytes] = field(default_factory=dict)
    drips: bool = False
    documents: dict[str, Document] = field(default_factory=dict)
    changes: dict[str, Change] = field(default_factory=dict)
    forgets_boot: bool = False
    refuses_boot: bool = False
    version: str = ""
    received: list[str] = field(default_factory=list)
    resets: list[str] = field(default_factory=list)
    arrivals: list[datetime] = field(default_factory=list)
    carried_out: list[str] = field(default_factory=list)
    effects: list[int] = field(default_factory=list)
    logins: int = 0
    connections: set[object] = field(default_factory=set)
    tokens: dict[str, str] = field(default_factory=dict)
    boot: Document = field(default_factory=dict)
    delay_s: float = 0.0
    holding: int = 0
    acted: Callable[[str], None] = field(default=lambda _: None)
    held_more: asyncio.Condition = field(default_factory=asyncio.Condition)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def path(self) -> str:
        """The path of its system."""
        return f"/redfish/v1/Systems/{self.machine.id}"

    def place(self, **others: Any) -> Place:
        """How it is reached."""
        given: dict[str, Any] = {
            "address": f"{self.scheme}://{HOST}:{self.port}",
            "credentials": Reference(environment=VARIABLE),
            "system": self.machine.id,
        }
        return Place(**{**given, **others})

    async def holds(self, count: int = 1) -> None:
        """Return once it holds so many requests."""
        async with self.held_more:
            await self.held_more.wait_for(lambda: self.holding >= count)

    def let_go(self) -> None:
        """Answer what is held, and hold nothing any more."""
        self.held.clear()
        self.released.set()

    def add_part(self, name: str, *members: Document) -> None:
        """Give the system a collection that the emulator does not have."""
        path = f"{self.path}/{name}"
        links = [{"@odata.id": f"{path}/{number}"} for number in range(len(members))]
        self.documents[path] = {"Members": links}
        self.documents |= {f"{path}/{n}": member for n, member in enumerate(members)}
        self.changes[self.machine.id] = lambda system: system.setdefault(name, {"@odata.id": path})

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer one request, as well as the faults allow."""
        self.received.append(f"{request.method} {request.path}")
        self.connections.add(request.get_extra_info("peername"))
        body = await request.read()
        is_reset = request.path.endswith("/ComputerSystem.Reset")
        if is_reset:
            number = len(self.resets)
            self.resets.append(json.loads(body)["ResetType"])
            self.arrivals.append(datetime.now(UTC))
        await asyncio.sleep(self.delay_s)
        if _ends(request.path, self.held):
            async with self.held_more:
                self.holding += 1
                self.held_more.notify_all()
            await self.released.wait()
        if (fault := await self._fault(request, body)) is not None:
            return fault
        answer = await self._answer(request, body)
        if is_reset and answer.status < HTTPStatus.BAD_REQUEST:
            self.carried_out.append(self.resets[number])
            self.effects.append(number)
            self.acted(self.resets[number])
        return self._hang_up(request) if request.method in self.breaks_after else answer

    async def _fault(self, request: web.Request, body: bytes) -> web.StreamResponse | None:
        """What is answered without an effect; None if the machine is to answer."""
        if request.method in self.breaks_before:
            return self._hang_up(request)
        for end, status in self.status.items():
            if request.path.endswith(end):
                why = {"error": {"message": f"{self.password} of {USER} is not liked"}}
                return web.json_response(why, status=status, headers={"Location": self.location})
        for end, content in self.content.items():
            if request.path.endswith(end):
                return await self._send(request, content)
        if not self._is_signed(request, body):
            why = {"error": {"message": f"no access with {body.decode()}"}}
            return web.json_response(why, status=401)
        return web.Response(status=412) if self._is_outdated(request) else None

    def _is_signed(self, request: web.Request, body: bytes) -> bool:
        if request.path == SESSIONS and request.method == "POST":
            given = json.loads(body)
            return (given["UserName"], given["Password"]) == (USER, self.password)
        pair = base64.b64encode(f"{USER}:{self.password}".encode()).decode()
        is_known = self.tokens.get(request.headers.get("X-Auth-Token", "")) == self.password
        return is_known or request.headers.get("Authorization") == f"Basic {pair}"

    def _is_outdated(self, request: web.Request) -> bool:
        given = request.headers.get("If-Match", "")
        wanted = "" if self.version.startswith("W/") else self.version
        return request.method == "PATCH" and given != wanted

    async def _answer(self, request: web.Request, body: bytes) -> web.Response:
        if request.path.startswith(SESSIONS):
            return self._session(request)
        if request.path in self.documents:
            return self._changed(request.path, self.documents[request.path])
        status, content = await self._ask_emulator(request, body)
        if request.method == "GET" and status == 200:
            document = json.loads(content)
            if request.path == self.path and self.boot:
                document["Boot"] |= self.boot
            return self._changed(request.path, document)
        return web.Response(status=status, body=content, content_type="application/json")

    def _changed(self, path: str, document: Document) -> web.Response:
        for end, change in self.changes.items():
            if path.endswith(end):
                change(document)
        return web.json_response(document, headers={"ETag": self.version} if self.version else {})

    def _session(self, request: web.Request) -> web.Response:
        if not self.has_sessions:
            return web.Response(status=404)
        if request.method == "DELETE":
            del self.tokens[f"{TOKEN}{request.path.removeprefix(f'{SESSIONS}/')}"]
            return web.Response(status=204)
        self.logins += 1
        token = f"{self.token}{self.logins}" if self.token == TOKEN else self.token
        self.tokens[token] = self.password
        headers = {"X-Auth-Token": token, "Location": f"{SESSIONS}/{self.logins}"}
        return web.json_response({}, status=201, headers=headers)

    async def _ask_emulator(self, request: web.Request, body: bytes) -> tuple[int, bytes]:
        if request.method == "PATCH":
            # The emulator would fetch the image, and knows no boot that happens once.
            boot = json.loads(body)["Boot"]
            if self.refuses_boot:
                why = {"error": {"message": f"{boot.get('HttpBootUri')} is not liked"}}
                return 400, json.dumps(why).encode()
            self.boot = {} if self.forgets_boot else boot
            body = json.dumps({"Boot": {**boot, "HttpBootUri": None}}).encode()
        for _ in range(LOCKED_MAX + 1):
            async with (
                aiohttp.ClientSession() as session,
                session.request(
                    request.method,
                    self.machine.url + request.path,
                    data=body,
                    headers={"Content-Type": "application/json"},
                ) as answer,
            ):
                status, content = answer.status, await answer.read()
            # The emulator gives up if many requests want its database, and has done nothing then.
            if b"database is locked" not in content:
                break
        return status, content

    async def _send(self, request: web.Request, content: bytes) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        step = 1 if self.drips else max(len(content), 1)
        for start in range(0, len(content), step):
            await response.write(content[start : start + step])
            if self.drips:
                await asyncio.sleep(DRIP_S)
        return response

    def _hang_up(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()


def _ends(path: str, ends: set[str]) -> bool:
    return any(path.endswith(end) for end in ends)


@asynccontextmanager
async def fronted(
    machine: Emulated,
    tls: ssl.SSLContext | None = None,
    host: str = HOST,
    **faults: Any,  # The fields of `Front` have many types.
) -> AsyncIterator[Front]:
    """A controller in front of an emulated machine, inside the context.

    host: where it listens, if it stands for the controllers at several addresses.
    """
    front = Front(machine, scheme="https" if tls else "http", **faults)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", front.serve)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, front.port, ssl_context=tls).start()
        yield front
    finally:
        front.let_go()
        await runner.cleanup()
