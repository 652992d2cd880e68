"""Where the image for wiping says how a wipe has ended.

The image of a `WipeProfile` is booted over HTTP from an address in which `{report}` stands for the
address of its report. The image posts `{"passed": true}`, or `{"passed": false, "cause": "..."}`,
there. The address is made for one boot of one machine with the key of all replicas, so nobody else
can say that a machine is wiped, and a report that comes late is one about an earlier boot. That the
power goes off says nothing of a wipe: a rack may lose it at any time.
"""

import hashlib
import hmac
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from aiohttp import web
from pydantic import BaseModel, Field, ValidationError

from metal.host.replica import MetalReplica
from metal.inventory.model import REPORT
from nodepool.contract.events import PowerRequested, WipeEnded
from nodepool.contract.keys import machine_key
from nodepool.contract.real_machines import Sentence
from nodepool.host.edge import FAULTS

BODY_MAX: Final = 8 * 1024
"""The largest report, in bytes."""
_DIGITS: Final = "[0-9]{1,9}"
_ROUTE: Final = f"/wipes/{{zone}}/{{machine}}/{{wipe:{_DIGITS}}}/{{number:{_DIGITS}}}/{{token}}"


class Report(BaseModel, extra="forbid", strict=True):
    """How a wipe has ended."""

    passed: bool
    cause: Sentence = Field(default="")


class Addresses:
    """The addresses of reports. url: how machines reach them; empty if nothing takes reports."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url
        self._key = key.encode()

    @property
    def are_taken(self) -> bool:
        """Whether a wipe can tell its end."""
        return bool(self._url)

    def fill(self, image: str, request: PowerRequested) -> str:
        """Return the address of an image with that of the report of this boot in it."""
        if REPORT not in image or not self._url:
            return image
        boot = (request.zone, request.machine, request.wipe, request.number)
        path = "/".join(quote(str(each), safe="") for each in (*boot, self.sign(*boot)))
        return image.replace(REPORT, quote(f"{self._url}/wipes/{path}", safe=""))

    def sign(self, zone: str, machine: str, wipe: int, number: int) -> str:
        """Return what only who knows the key can make for a boot."""
        content = f"{zone}/{machine}/{wipe}/{number}".encode()
        return hmac.new(self._key, content, hashlib.sha256).hexdigest()


class ReportServer:
    """Takes reports; any replica may, as a report is an event like any other."""

    def __init__(self, replica: MetalReplica, addresses: Addresses) -> None:
        self._replica = replica
        self._addresses = addresses
        app = web.Application(client_max_size=BODY_MAX)
        app.router.add_post(_ROUTE, self._take)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)

    async def open(self, host: str, port: int) -> int:
        """Listen, and return the port; raise OSError if that is not possible."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def close(self) -> None:
        """Take no more reports."""
        await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        """Answer 204 once a report is stored, or was stored before."""
        found = request.match_info
        zone, machine = found["zone"], found["machine"]
        wipe, number = int(found["wipe"]), int(found["number"])
        signature = self._addresses.sign(zone, machine, wipe, number)
        if not hmac.compare_digest(signature.encode(), found["token"].encode()):
            return _refuse(HTTPStatus.FORBIDDEN, "no boot has this address")
        try:
            report = Report.model_validate_json(await request.read())
        except ValidationError:
            return _refuse(HTTPStatus.BAD_REQUEST, 'send {"passed": true}, or false with a "cause"')
        if not self._replica.is_ready:
            return _refuse(HTTPStatus.SERVICE_UNAVAILABLE, "not ready; try again")
        known = self._replica.machine(machine_key(zone, machine))
        if known.wipe != wipe or known.number != number:
            return _refuse(HTTPStatus.CONFLICT, "this boot is over")
        if known.wipe_due is None or known.wipe_end is not None:
            return web.Response(status=HTTPStatus.NO_CONTENT)
        event = WipeEnded(
            zone=zone, machine=machine, wipe=wipe, passed=report.passed, cause=report.cause
        )
        try:
            await self._replica.say(event)
        except FAULTS as error:
            return _refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"not stored; try again: {error}")
        return web.Response(status=HTTPStatus.NO_CONTENT)


def _refuse(status: HTTPStatus, why: str) -> web.Response:
    return web.json_response({"error": why}, status=status)
