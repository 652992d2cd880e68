"""What a client shows to each server, from files that are read again for each connection.

nats-py reads some of these files only once.
"""

import ssl
from collections.abc import Callable
from typing import TypedDict
from urllib.parse import unquote

from nats.aio.client import Client
from nats.errors import Error as NatsError

from nodepool.nats.access import INBOX_PREFIX, NO_ACCESS, Access


class Shown(TypedDict):
    """The options of a nats-py client; it calls each function once per connection."""

    user: str | None
    password: Callable[[], str] | None
    token: Callable[[], str] | None
    user_jwt_cb: Callable[[], bytes] | None
    signature_cb: Callable[[str], bytes] | None
    inbox_prefix: str


class AuthenticatingClient(Client):
    """A client whose files are read again for each connection."""

    def __init__(self) -> None:
        super().__init__()
        self._access = NO_ACCESS

    def shown(self, access: Access, address: str) -> Shown:
        """Return the options that authenticate to all servers; `address` names the user."""
        self._access = access
        self._auth_configured = access.is_shown
        user = user_of(address)
        password = access.password if access.password_file else None
        return Shown(
            user=unquote(user) if user and password else None,
            password=password if user else None,
            token=None if user else password,
            user_jwt_cb=self._jwt if access.creds_file else None,
            signature_cb=self._sign if access.creds_file or access.nkey_file else None,
            inbox_prefix=access.inbox_prefix or INBOX_PREFIX,
        )

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """The TLS context of a connection; raises AccessError if a file cannot be used."""
        return self._access.tls_context()

    def _jwt(self) -> bytes:
        return self._access.jwt().encode()

    def _sign(self, nonce: str) -> bytes:
        self._public_nkey, signature = self._access.sign(nonce)
        return signature

    async def _process_info(
        self, info: dict[str, object], initial_connection: bool = False
    ) -> None:
        server = self._current_server
        if initial_connection and server is not None and server.uri.scheme == "tls":
            if not (info.get("tls_required") or info.get("tls_available")):
                raise NatsError("nats: the server offers no TLS, which tls:// asks for")
            # The client encrypts only if the server requires TLS.
            info["tls_required"] = True
        await super()._process_info(info, initial_connection)


def user_of(address: str) -> str:
    """Return the user of an address with its password, as written there; "" if it has no user."""
    return address.rpartition("://")[2].rpartition("@")[0]
