"""An OpenID provider that answers whatever a test wants, and signs what no honest one would."""

import base64
import hmac
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT = "console"


class Forger:
    """The provider, with one key.

    answers: what it answers at a path, instead of what it must: a status, headers and a body.
    asked: how often each path was asked for. token: the next ID token.
    """

    def __init__(self, port: int) -> None:
        self.issuer = f"http://127.0.0.1:{port}"
        self.kid, self.key = "one", RSAKey.generate_key(2048, {"kid": "one"})
        self.answers: dict[str, tuple[int, Mapping[str, str], bytes]] = {}
        self.asked = Counter[str]()
        self.token = ""

    def claims(self, nonce: str, **other: object) -> dict[str, Any]:
        """What an honest token says; a claim that is None is missing."""
        now = int(time.time())
        times = {"iat": now, "exp": now + 300}
        named = {"iss": self.issuer, "aud": CLIENT, "sub": "mallory", "nonce": nonce}
        found: dict[str, Any] = {**times, **named, "groups": ["team"], **other}
        return {name: value for name, value in found.items() if value is not None}

    def sign(self, claims: Mapping[str, Any], key: RSAKey | None = None, **header: object) -> str:
        """A token that is signed as it must be."""
        return jwt.encode(
            {"alg": "RS256", "kid": self.kid, **header}, dict(claims), key or self.key
        )

    def change_key(self, kid: str) -> None:
        """Sign with a new key of this name from now on."""
        self.kid, self.key = kid, RSAKey.generate_key(2048, {"kid": kid})

    def unsigned(self, claims: Mapping[str, Any]) -> str:
        """A token that nobody has signed, and that says so."""
        return f"{_pack({'alg': 'none', 'kid': self.kid})}.{_pack(claims)}."

    def sealed(self, claims: Mapping[str, Any]) -> str:
        """A token whose shared secret is the public key, which everybody has."""
        text = f"{_pack({'alg': 'HS256', 'kid': self.kid})}.{_pack(claims)}"
        mark = hmac.digest(self.key.as_pem(private=False), text.encode(), "sha256")
        return f"{text}.{base64.urlsafe_b64encode(mark).decode().rstrip('=')}"

    def answer(self, path: str) -> tuple[int, Mapping[str, str], bytes]:
        """What comes back for a path."""
        self.asked[path] += 1
        documents: dict[str, dict[str, Any]] = {
            "/.well-known/openid-configuration": {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
            },
            "/keys": {"keys": [self.key.as_dict(private=False)]},
            "/token": {"access_token": "a", "token_type": "Bearer", "id_token": self.token},
        }
        if path in self.answers:
            return self.answers[path]
        return 200, {}, json.dumps(documents[path]).encode()


def _pack(document: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")


@contextmanager
def forging() -> Iterator[Forger]:
    """A provider of this kind."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # The library calls it so.
            status, headers, body = forger.answer(self.path)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        forger = Forger(server.server_address[1])
        thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield forger
        finally:
            server.shutdown()
            thread.join()
