"""Opens connections to the API server of a cluster, with the credentials of an account."""

import ssl
from contextlib import aclosing
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2
from aiohttp import (
    ClientError,
    ClientHandlerType,
    ClientMiddlewareType,
    ClientRequest,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
)
from lightkube.config.client_adapter import user_auth, verify_cluster
from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import User


def open_session(config: SingleConfig) -> ClientSession:
    """Return a session without cookies, compression or timeouts, for an API server alone."""
    user = config.user or User()
    auth = user_auth(user)
    trust = verify_cluster(config.cluster, user, config.abs_file)
    # As `nodepool.nats.wire.access` does: Python 3.13 refuses the authorities of many clusters.
    trust.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return ClientSession(
        auto_decompress=False,
        connector=TCPConnector(ssl=trust),
        cookie_jar=DummyCookieJar(),
        middlewares=[] if auth is None else [_signing(auth)],
        proxy=_proxy_to(config.cluster.server),
        skip_auto_headers=["Accept-Encoding"],
        timeout=ClientTimeout(),
    )


def _proxy_to(server: str) -> str | None:
    """Return the URL of the proxy that the environment names for a server.

    aiohttp would read the environment, and a file of passwords, for each request.
    """
    url = urlsplit(server)
    proxy = getproxies().get(url.scheme)
    if not proxy or proxy_bypass(url.hostname or ""):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _signing(auth: httpx2.Auth) -> ClientMiddlewareType:
    """Return a function that sends requests with credentials; lightkube knows their kinds."""
    bearer = httpx2.Request("GET", "http://api-server")

    async def send_signed(request: ClientRequest, send: ClientHandlerType) -> ClientResponse:
        """Send a request, and again if the API server refuses credentials that can be renewed."""
        async with aclosing(auth.async_auth_flow(bearer)) as flow:
            signed = await anext(flow)
            while True:
                request.headers["Authorization"] = signed.headers["Authorization"]
                try:
                    response = await send(request)
                except ValueError as error:
                    raise ClientError("these credentials fit no header") from error
                if response.status != 401:
                    return response
                try:
                    signed = await flow.asend(httpx2.Response(401))
                except StopAsyncIteration:
                    return response
                response.release()

    return send_signed
