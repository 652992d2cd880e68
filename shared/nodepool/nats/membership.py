"""The servers of a cluster, according to the connected server: the known and the lost servers.

nats-py does not authenticate to a server that another server has named, and never forgets servers
that are gone. It also trusts what arrives before a connection is encrypted. An attacker on the
network could write that, name a host of their own, and be shown the password. The server sends the
same information again after the client has connected, see
https://docs.nats.io/reference/reference-protocols/nats-protocol#info.
"""

import asyncio
import time
from collections.abc import Callable, Sequence

from nats.aio.client import Srv
from nats.aio.msg import Msg
from nats.errors import ConnectionReconnectingError
from nats.errors import Error as NatsError

from nodepool.nats.authentication import AuthenticatingClient, user_of
from nodepool.nats.cancelling import heeding
from nodepool.nats.lost_replies import SERVER_LOST_S, give_up

SERVERS_MAX = 64
"""How many servers of a cluster are remembered, in addition to the servers of the address."""
HURRY_S = 15.0
"""How long the other servers may be electing new leaders after a server is lost."""
HURRIED_S = 0.5
"""How long a reply may take during that time: without a leader, a request never gets a reply."""


class MemberClient(AuthenticatingClient):
    """A client that learns which servers its cluster has, and when a server is lost.

    on_server_lost: called when the connected server has lost another server of the cluster.
    """

    def __init__(self) -> None:
        super().__init__()
        self.on_server_lost: list[Callable[[], None]] = []
        self._named: frozenset[str] = frozenset()
        self._lost_at = -HURRY_S

    @property
    def hurries(self) -> bool:
        """Whether a server was lost lately, so that a request may have to be sent again soon."""
        return time.monotonic() - self._lost_at < HURRY_S

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        timeout: float = 0.5,  # noqa: ASYNC109  # As nats-py has it.
        old_style: bool = False,
        headers: dict[str, str] | None = None,
    ) -> Msg:
        """Return the reply to a message; always heed a cancellation of the calling task."""
        return await heeding(super().request(subject, payload, timeout, old_style, headers))

    async def _process_info(
        self, info: dict[str, object], initial_connection: bool = False
    ) -> None:
        server, hosts = self._current_server, info.pop("connect_urls", None)
        named = [host for host in hosts if isinstance(host, str)] if isinstance(hosts, list) else []
        is_clear = initial_connection and server is not None and server.uri.scheme == "tls"
        if isinstance(hosts, list) and server is not None and not is_clear:
            self._learn(named[:SERVERS_MAX], server)
        await super()._process_info(info, initial_connection)
        before, self._named = self._named, frozenset(named)
        if before - self._named and not initial_connection:
            self._server_lost()

    def _server_lost(self) -> None:
        self._lost_at = time.monotonic()
        waiting = tuple(self._resp_map.values())
        asyncio.get_running_loop().call_later(
            SERVER_LOST_S, give_up, waiting, ConnectionReconnectingError
        )
        for notify in tuple(self.on_server_lost):
            notify()

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
