"""What a client shows to each server of a cluster, and which servers it learns of.

Files are read again for each connection; nats-py reads some of them only once.

nats-py does not authenticate to a server that another server has named, and never forgets servers
that are gone. It also trusts what arrives before a connection is encrypted. An attacker on the
network could write that, name a host of their own, and be shown the password. The server sends the
same information again after the client has connected, see
https://docs.nats.io/reference/reference-protocols/nats-protocol#info.
"""

import ssl
from collections.abc import Callable, Sequence
from typing import TypedDict
from urllib.parse import unquote

from nodepool.nats.wire.access import NO_ACCESS, Access
from nodepool.nats.wire.addresses import user_of
from nodepool.nats.wire.client import BusClient
from nodepool.nats.wire.library import NatsError, Srv

SERVERS_MAX = 64
"""How many servers of a cluster are remembered, in addition to the servers of the address."""


class Shown(TypedDict):
    """The options of a nats-py client; it calls each function once per connection."""

    user: str | None
    password: Callable[[], str] | None
    token: Callable[[], str] | None
    user_jwt_cb: Callable[[], bytes] | None
    signature_cb: Callable[[str], bytes] | None
    inbox_prefix: str


class AuthenticatingClient(BusClient):
    """A client that authenticates to all servers of its cluster, and notices when one is lost."""

    def __init__(self) -> None:
        super().__init__()
        self._access = NO_ACCESS
        self._named: frozenset[str] = frozenset()

    def build_options(self, access: Access, address: str) -> Shown:
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
            inbox_prefix=access.reply_prefix(),
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
        server, hosts = self._current_server, info.pop("connect_urls", None)
        named = [host for host in hosts if isinstance(host, str)] if isinstance(hosts, list) else []
        asking = self._asking_for_tls(server)
        is_clear = initial_connection and bool(asking)
        if isinstance(hosts, list) and server is not None and not is_clear:
            self._learn(named[:SERVERS_MAX], server)
        if is_clear:
            if not (info.get("tls_required") or info.get("tls_available")):
                raise NatsError(f"nats: the server offers no TLS, which {asking}")
            # The client encrypts only if the server requires TLS.
            info["tls_required"] = True
        await super()._process_info(info, initial_connection)
        before, self._named = self._named, frozenset(named)
        if before - self._named and not initial_connection:
            self._server_lost()

    def _asking_for_tls(self, server: Srv | None) -> str:
        """Return what asks for TLS, as a clause; empty if an unencrypted server may be used.

        Over a WebSocket, TLS has begun before the first message.
        """
        if server is None or server.uri.scheme in ("ws", "wss"):
            return ""
        if server.uri.scheme == "tls":
            return "tls:// asks for"
        return "the certificates of the client ask for" if self._access.certificates else ""

    def _learn(self, named: Sequence[str], server: Srv) -> None:
        """Add the other servers that this server names, and forget servers no longer named."""
        given = [known for known in self._server_pool if not known.discovered or known is server]
        places = {(known.uri.hostname, known.uri.port) for known in given}
        before = {known.uri.geturl(): known for known in self._server_pool if known.discovered}
        user = user_of(server.uri.geturl())
        for host in named:
            try:
                uri = self._parse_server_uri(
                    f"{server.uri.scheme}://{user}{'@' * bool(user)}{host}"
                )
            except NatsError:
                continue
            if (uri.hostname, uri.port) not in places:
                # Its certificate may name the host of the address instead of an IP address.
                tls_name = server.tls_name or server.uri.hostname
                is_ip = self._host_is_ip(uri.hostname)
                fresh = Srv(uri, discovered=True, tls_name=tls_name if is_ip else None)
                given.append(before.get(uri.geturl(), fresh))
        self._server_pool[:] = given
