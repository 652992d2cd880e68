"""The addresses at which browsers reach the console, and the cookie of each."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from console.host.settings import LOOPBACK

SECURE: Final = "__Host-"
"""The prefix of a cookie that no other host, path or plain connection can set."""


@dataclass(frozen=True, slots=True)
class Door:
    """An address of the console.

    base: the address, without a path. cookie: the name of the cookie of a session.
    is_own: whether it is that of this machine, where a one-time link counts.
    """

    base: str
    cookie: str
    is_own: bool

    def give(self, response: Response, name: str, value: str, most_s: int | None = None) -> None:
        """Set a cookie that scripts, and forms of other sites, do not have."""
        response.set_cookie(
            name,
            value,
            max_age=most_s,
            httponly=True,
            samesite="lax",
            path="/",
            secure=self.cookie.startswith(SECURE),
        )

    def take(self, response: Response, name: str) -> None:
        """Remove a cookie."""
        response.delete_cookie(
            name,
            path="/",
            httponly=True,
            samesite="lax",
            secure=self.cookie.startswith(SECURE),
        )


class Doors:
    """The addresses of a console: that of this machine, and at most one for others.

    main: where the OpenID provider sends browsers back to.
    """

    def __init__(self, port: int, url: str) -> None:
        # Cookies are shared by all ports of a host, so the name has the port. `__Host-` needs
        # `Secure`, which not every browser takes over plain HTTP, even on the machine itself.
        name = f"nodepool-console-{port}"
        own = Door(f"http://{LOOPBACK}:{port}", name, is_own=True)
        doors = {f"{LOOPBACK}:{port}": own, f"localhost:{port}": own}
        self.main = own
        if url and urlsplit(url).netloc not in doors:
            prefix = SECURE if url.startswith("https:") else ""
            self.main = Door(url, prefix + name, is_own=False)
            doors[urlsplit(url).netloc] = self.main
        self._doors = doors
        self.hosts = tuple(doors)

    def of(self, request: Request) -> Door:
        """Return the address that a request has come to, which the guard has let pass."""
        return self._doors[request.headers["host"]]
