"""A real OpenID provider beside the console, and people who sign in at it without a browser."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path

import httpx2

from bus.consoles import Answer, Browser
from bus.harness import until
from console.host.openid import OpenID
from support.openid_provider import CLIENT, PASSWORD, SECRET
from testbed.ports import free_port

FIELD = re.compile(r'<input[^>]*name="csrf_token"[^>]*value="([^"]+)"')
USERS = {
    "gpu-admins": "acme/owner",
    "gpu-team": "acme/editor",
    "gpu-guests": "acme/viewer",
    "umbra": "umbra/owner",
    "platform": "operator",
}
PEOPLE = {
    "olga": ["gpu-admins"],
    "edith": ["gpu-team", "lunch"],
    "victor": ["gpu-guests"],
    "ursula": ["umbra"],
    "otto": ["platform"],
    "nora": ["lunch"],
    "nemo": [],
}
"""The groups of each person at the provider."""


class Provider:
    """A provider, as a process."""

    def __init__(self, folder: Path, base: str) -> None:
        self._base, self._folder = base, folder
        self._port = free_port()
        self.issuer = f"http://127.0.0.1:{self._port}"
        self._process: asyncio.subprocess.Process | None = None

    def settings(self, **other: object) -> OpenID:
        """The settings of a console for this provider."""
        secret = self._folder / "openid-secret"
        secret.write_text(f"{SECRET}\n")
        given = {"issuer": self.issuer, "clientID": CLIENT, "clientSecretFile": secret}
        return OpenID.model_validate({**given, "users": USERS, **other})

    async def start(self) -> None:
        """Start it, with a new key."""
        words = ("-m", "support.openid_provider", str(self._port), self._base)
        paths = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
        with (self._folder / "openid.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, *words), env=paths, stdin=-1, stdout=log, stderr=log
            )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(PEOPLE).encode())
        self._process.stdin.close()
        async with httpx2.AsyncClient() as client:
            await until(lambda: self._answers(client))

    async def _answers(self, client: httpx2.AsyncClient) -> bool:
        assert self._process is not None
        assert self._process.returncode is None, (self._folder / "openid.log").read_text()
        try:
            return (await client.get(f"{self.issuer}/oauth/jwks.json")).status_code == 200
        except httpx2.TransportError:
            return False

    async def stop(self) -> None:
        """Stop it."""
        if self._process is not None:
            self._process.kill()
            await self._process.wait()
            self._process = None


@asynccontextmanager
async def provider_for(folder: Path, base: str) -> AsyncIterator[Provider]:
    """A provider that knows the console at an address."""
    provider = Provider(folder, base)
    try:
        await provider.start()
        yield provider
    finally:
        await provider.stop()


class Person:
    """Somebody with a browser that has the cookies of the provider and those of the console."""

    def __init__(self, base: str, name: str) -> None:
        self.browser, self._base, self._name = Browser(base), base, name
        self._jar = httpx2.Cookies()

    async def sign_in(self, back: str = "") -> Answer:
        """Sign in at the provider, and return what the console says to the way back."""
        return await self.browser.get(await self.come_back(back))

    async def come_back(self, back: str = "") -> str:
        """Sign in at the provider, and return the address that it leads to."""
        answer = await self.browser.get(f"/login/start?next={back}")
        assert answer.status == 303, answer.text
        return await self._log_in(answer.headers["location"])

    async def _log_in(self, address: str) -> str:
        """Fill in the forms of the provider, one field on each page."""
        typed = {'name="login"': self._name, 'name="password"': PASSWORD}
        async with httpx2.AsyncClient(cookies=self._jar) as client:
            answer = await client.get(address)
            for _ in range(12):
                if answer.has_redirect_location:
                    to = str(httpx2.URL(str(answer.url)).join(answer.headers["location"]))
                    if to.startswith(self._base):
                        self._jar = client.cookies
                        return to
                    answer = await client.get(to)
                    continue
                token = FIELD.search(answer.text)
                field = next((each for each in typed if each in answer.text), None)
                assert token is not None, answer.text
                assert field is not None, answer.text
                name = field.split('"')[1]
                fields = {"csrf_token": unescape(token[1]), name: typed[field]}
                answer = await client.post(str(answer.url), data=fields)
        raise AssertionError(f"the provider leads nowhere: {answer.url}")

    async def visit_provider(self, address: str) -> Sequence[str]:
        """Go to an address of the provider, and return the addresses that it leads on to."""
        seen = list[str]()
        async with httpx2.AsyncClient(cookies=self._jar) as client:
            while len(seen) < 6 and not address.startswith(self._base):
                answer = await client.get(address)
                seen.append(str(answer.url))
                if not answer.has_redirect_location:
                    break
                address = str(answer.url.join(answer.headers["location"]))
            self._jar = client.cookies
        return [*seen, address]
