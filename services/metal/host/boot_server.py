"""Where machines that boot get their configuration, and the image for wiping reports its end.

The address of an image contains both addresses, signed for this one boot. The image reads its
configuration with GET. The image of a `WipeProfile` posts `{"passed": true}`, or
`{"passed": false, "cause": "..."}`, to the address of its report. Nobody else can say that a
machine is wiped, or get a join token, and a late request is about an earlier boot. A loss of power
does not end a wipe: a rack may lose its power at any time.
"""

import asyncio
from http import HTTPStatus
from typing import Final

from aiohttp import web
from pydantic import BaseModel, Field, ValidationError

from metal.host.addresses import Addresses, Path, config_path, report_path
from metal.host.configuring import build_config
from metal.host.managed import ManagedMachines
from metal.host.replica import MetalReplica
from metal.machine import Machine
from nodepool.contract.events import WipeEnded
from nodepool.contract.keys import machine_key
from nodepool.contract.real_machines import Sentence
from nodepool.host.edge import FAULTS
from nodepool.nats.wire.errors import AccessError

BODY_MAX: Final = 8 * 1024
"""The largest report, in bytes."""
CLIENTS_MAX: Final = 128
"""The most clients at a time; a further client ends the connection that has been open longest.

Any system on a machine can open connections, and the controllers need file descriptors, too.
"""
_DIGITS: Final = "[0-9]{1,9}"
_BOOT: Final = f"{{number:{_DIGITS}}}/{{signature}}"
_CONFIG: Final = f"/boots/{{zone}}/{{machine}}/{_BOOT}"
_REPORT: Final = f"/wipes/{{zone}}/{{machine}}/{{wipe:{_DIGITS}}}/{_BOOT}"
_NOT_READY: Final = "not ready; try again"


class Report(BaseModel, extra="forbid", strict=True):
    """How a wipe has ended."""

    passed: bool
    cause: Sentence = Field(default="")


class _RefusedError(Exception):
    """A request is refused with this status, for the reason that its text tells."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class BootServer:
    """Answers machines that boot; any replica may do so, as it stores a report as an event."""

    def __init__(
        self, replica: MetalReplica, machines: ManagedMachines, addresses: Addresses
    ) -> None:
        self._replica = replica
        self._machines = machines
        self._addresses = addresses
        app = web.Application(client_max_size=BODY_MAX)
        app.router.add_post(_REPORT, self._take)
        app.router.add_get(_CONFIG, self._configure)
        app.on_response_prepare.append(_forbid_storing)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        self._listening: asyncio.Server | None = None

    async def open(self, host: str, port: int) -> int:
        """Listen, and return the port; raise OSError if that is not possible."""
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(self._accept, host, port)
        return int(self._listening.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Answer no more."""
        if self._listening is not None:
            self._listening.close()
        await self._runner.cleanup()

    def _accept(self) -> asyncio.Protocol:
        """Return the protocol that serves one more client."""
        server = self._runner.server
        assert server is not None, "it is set up"
        for oldest in server.connections[: 1 - CLIENTS_MAX]:
            oldest.force_close()
        return server()

    async def _take(self, request: web.Request) -> web.Response:
        """Answer 204 once a report is stored, or was stored before."""
        found = request.match_info
        zone, machine = found["zone"], found["machine"]
        wipe, number = int(found["wipe"]), int(found["number"])
        try:
            self._check_signed(request, report_path(zone, machine, wipe, number))
            report = Report.model_validate_json(await request.read())
            known = self._find_machine(zone, machine, number)
            if known.wipe != wipe:
                raise _RefusedError(HTTPStatus.CONFLICT, "this boot is over")
            if known.wipe_due is not None and known.wipe_end is None:
                event = WipeEnded(
                    zone=zone, machine=machine, wipe=wipe, passed=report.passed, cause=report.cause
                )
                await self._replica.say(event)
        except ValidationError:
            return _refuse(HTTPStatus.BAD_REQUEST, 'send {"passed": true}, or false with a "cause"')
        except FAULTS as error:
            return _refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"not stored; try again: {error}")
        except _RefusedError as refused:
            return _refuse(refused.status, str(refused))
        return web.Response(status=HTTPStatus.NO_CONTENT)

    async def _configure(self, request: web.Request) -> web.Response:
        """Answer with the configuration of a boot that is under way."""
        found = request.match_info
        zone, machine, number = found["zone"], found["machine"], int(found["number"])
        key = machine_key(zone, machine)
        try:
            self._check_signed(request, config_path(zone, machine, number))
            if self._machines.inventory is None:
                raise _RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, _NOT_READY)
            known = self._find_machine(zone, machine, number)
            config = build_config(key, known, self._machines, self._addresses)
        except AccessError as error:
            self._replica.log.warning("no join token", machine=key, cause=str(error))
            return _refuse(HTTPStatus.SERVICE_UNAVAILABLE, "no join token; try again")
        except _RefusedError as refused:
            return _refuse(refused.status, str(refused))
        if config is None:
            return _refuse(HTTPStatus.CONFLICT, "this boot is over")
        return web.json_response(config)

    def _check_signed(self, request: web.Request, path: Path) -> None:
        """Raise _RefusedError for an address that was not made here."""
        if not self._addresses.has_signed(path, request.match_info["signature"]):
            raise _RefusedError(HTTPStatus.FORBIDDEN, "no boot has this address")

    def _find_machine(self, zone: str, machine: str, number: int) -> Machine:
        """Return a machine; raise _RefusedError unless this number is that of its last request."""
        known = self._replica.machine(machine_key(zone, machine))
        if not self._replica.is_ready or known.number < number:
            raise _RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, _NOT_READY)
        if known.number > number:
            raise _RefusedError(HTTPStatus.CONFLICT, "this boot is over")
        return known


async def _forbid_storing(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Cache-Control"] = "no-store"


def _refuse(status: HTTPStatus, why: str) -> web.Response:
    return web.json_response({"error": why}, status=status)
