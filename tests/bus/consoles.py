"""A console at work on a server with accounts, a gateway and every service, and browsers of it."""

import asyncio
import http.client
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from bus.accounts import CLUSTER, ORG, OTHER_ORG, Guarded, guarded_server
from bus.guarded_gateway import at_work
from bus.harness import PATIENCE_S, until
from console.host.openid import OpenID
from console.host.settings import ConsoleSettings
from console.main import Console
from nodepool.auth.accounts import ARCHIVER, OPERATOR
from nodepool.auth.rights import inbox_prefix
from nodepool.client import Client
from nodepool.contract.commands import AddMachines
from nodepool.contract.services import SERVICES
from nodepool.host.settings import Settings
from support.constants import A100, H100, ZONE

PEOPLE = ((ORG, ""), (OTHER_ORG, "other-"))
TOKEN = re.compile('name="form_token" value="([^"]+)"')


@dataclass
class World:
    """A console, the server behind it, and an operator's client for the organisation."""

    server: Guarded
    folder: Path
    console: Console
    operator: Client

    @property
    def links(self) -> Path:
        """The folder of the one-time links."""
        return self.folder / "links"

    def link(self, user: str, org: str = ORG) -> str:
        """The link of a user; of the operator without an organisation."""
        return (self.links / (f"{org}.{user}" if org else user)).read_text().strip()

    async def browser(self, user: str, org: str = ORG) -> "Browser":
        """A browser in which a user has signed in."""
        browser = Browser(self.console.url)
        answer = await browser.get(self.link(user, org))
        assert answer.status == 303
        return browser


@dataclass
class Answer:
    """What a request came back with."""

    status: int
    text: str
    headers: Mapping[str, str]


@dataclass
class Browser:
    """Sends what a browser sends, without running scripts."""

    base: str
    cookies: dict[str, str] = field(default_factory=dict)
    form_token: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def cookie(self) -> str:
        """The cookies, as a request has them."""
        return "; ".join(f"{name}={value}" for name, value in self.cookies.items())

    async def get(self, path: str, **headers: str) -> Answer:
        """Follow a link."""
        return await asyncio.to_thread(self._request, "GET", path, None, headers)

    async def post(self, path: str, fields: Mapping[str, str], **headers: str) -> Answer:
        """Send a form of the page that was seen last."""
        sent = {"form_token": self.form_token, **fields}
        site = {"Sec-Fetch-Site": "same-origin", **headers}
        return await asyncio.to_thread(self._request, "POST", path, urlencode(sent), site)

    def _request(
        self, method: str, path: str, body: str | None, headers: Mapping[str, str]
    ) -> Answer:
        parts = urlsplit(self.base)
        connection = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE_S)
        form = {"Content-Type": "application/x-www-form-urlencoded"} if body is not None else {}
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        cookie = {"Cookie": self.cookie} if self.cookie else {}
        try:
            target = path.removeprefix(self.base)
            connection.request(method, target, body, {**form, **cookie, **self.headers, **given})
            response = connection.getresponse()
            text = response.read().decode()
            for line in response.headers.get_all("Set-Cookie", []):
                name, _, value = line.partition(";")[0].partition("=")
                self.cookies[name] = value
                if "Max-Age=0" in line:
                    del self.cookies[name]
            if found := TOKEN.search(text):
                self.form_token = found[1]
            return Answer(response.status, text, dict(response.getheaders()))
        finally:
            connection.close()


@asynccontextmanager
async def console_at_work(
    folder: Path,
    but: Sequence[str] = (),
    port: int = 0,
    openid: OpenID | None = None,
    *,
    archives: bool = False,
) -> AsyncIterator[World]:
    """A console with two organisations, one of which has a cluster, quotas and machines.

    but: services that do not run. openid: who signs users in, beside one-time links.
    archives: whether there is an archive, and the past is shown.
    """
    names = [name for name in SERVICES if name not in but]
    with guarded_server(folder) as server:
        await server.until_ready()
        await server.provision()
        archive = str(folder / "archive") if archives else ""
        async with (
            at_work(server, folder, *names, archive=archive),
            _archiver(server, folder, archive),
            _operator(server) as operator,
        ):
            if not but:
                await _stock(operator)
            settings = ConsoleSettings(
                Settings(url=server.url, metrics_port=0, log_file=str(folder / "console.log")),
                _write_keys(server, folder),
                folder / "links",
                port=port,
                openid=openid,
            )
            async with running(settings) as console:
                yield World(server, folder, console, operator)


@asynccontextmanager
async def running(settings: ConsoleSettings) -> AsyncIterator[Console]:
    """A console that serves its pages."""
    console, stop = Console(settings), asyncio.Event()
    task = asyncio.create_task(console.run(stop))
    try:
        await until(lambda: console.obstacle() is None or task.done())
        yield console
    finally:
        stop.set()
        await task


@asynccontextmanager
async def _archiver(server: Guarded, folder: Path, archive: str) -> AsyncIterator[None]:
    if not archive:
        yield
        return
    from bus.archives import archiving

    async with archiving(server, archive, folder / "archiver.log", server.access(ARCHIVER)):
        yield


@asynccontextmanager
async def _operator(server: Guarded) -> AsyncIterator[Client]:
    access = server.access(OPERATOR)
    async with Client(server.url, org=ORG, cluster=CLUSTER, access=access) as client:
        yield client


async def _stock(operator: Client) -> None:
    await operator.clusters.register(CLUSTER, ZONE)
    for kind, count in ((H100, 8), (A100, 6)):
        await operator.quotas.set(ZONE, kind, count)
        add = AddMachines(zone=ZONE, instance_type=kind, count=count, boot_seconds=0)
        await operator.commands.send(add)
    # A console that reads them later than its first page would show that there is no quota.
    await operator.session.backend.catch_up("clusters")
    await operator.session.backend.catch_up("quotas")


def _write_keys(server: Guarded, folder: Path) -> Path:
    keys = folder / "keys"
    for org, prefix in PEOPLE:
        (keys / org).mkdir(parents=True)
        for role in ("viewer", "editor", "owner"):
            seed = server.identities[f"{prefix}{role}"].key.seed
            lines = (f"# {org}/{role}, {role}", f"# inbox prefix: {inbox_prefix(role)}", seed)
            (keys / org / f"{role}.nk").write_text("\n".join(lines) + "\n")
    seed = server.identities[OPERATOR].key.seed
    lines = ("# operator, platform", f"# inbox prefix: {inbox_prefix(OPERATOR)}", seed)
    (keys / f"{OPERATOR}.nk").write_text("\n".join(lines) + "\n")
    return keys
