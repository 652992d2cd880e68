"""Users of a nats-server: nkeys and JWTs, made as `nsc` makes them.

See https://docs.nats.io/running-a-nats-service/configuration/securing_nats/auth_intro/jwt.
"""

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Literal

PREFIXES = {"operator": 14 << 3, "account": 0, "user": 20 << 3}
_SEED = 18 << 3
Kind = Literal["operator", "account", "user"]


@dataclass(frozen=True)
class Key:
    """An nkey: its seed and its public key, as text."""

    kind: Kind
    secret: bytes

    @property
    def seed(self) -> str:
        """The secret, as nsc writes it."""
        prefix = PREFIXES[self.kind]
        return _encoded(bytes((_SEED | prefix >> 5, (prefix & 31) << 3)) + self.secret)

    @property
    def public(self) -> str:
        """The public key."""
        from nacl.signing import SigningKey

        return _encoded(bytes((PREFIXES[self.kind],)) + bytes(SigningKey(self.secret).verify_key))

    def sign(self, content: bytes) -> bytes:
        """The signature of some bytes."""
        from nacl.signing import SigningKey

        signature: bytes = SigningKey(self.secret).sign(content).signature
        return signature


def key(kind: Kind, number: int = 1) -> Key:
    """A key; always the same one for a kind and a number."""
    return Key(kind, bytes([PREFIXES[kind] & 0x7F, number]) * 16)


def jwt(issuer: Key, subject: Key, claims: dict[str, object], expires: int = 0) -> str:
    """The JWT in which one key says something about another one; `expires` in seconds, 0 never."""
    body: dict[str, object] = {
        "jti": subject.public,
        "iat": 1,
        "iss": issuer.public,
        "name": subject.kind,
        "sub": subject.public,
        "nats": {"type": subject.kind, "version": 2, **claims},
    }
    if expires:
        body["exp"] = expires
    head = {"typ": "JWT", "alg": "ed25519-nkey"}
    signed = ".".join(_url_text(json.dumps(part).encode()) for part in (head, body))
    return f"{signed}.{_url_text(issuer.sign(signed.encode()))}"


def user_jwt(user: Key, expires: int = 0) -> str:
    """The JWT of a user of the account of `operator_settings`."""
    unlimited = {"subs": -1, "data": -1, "payload": -1, "pub": {}, "sub": {}}
    return jwt(key("account"), user, unlimited, expires)


def credentials(user: Key, token: str) -> str:
    """What a credentials file holds."""
    return (
        f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
        "************************* IMPORTANT *************************\n"
        "NKEY Seed printed below can be used to sign and prove identity.\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
    )


def operator_settings() -> str:
    """The settings of a server that believes the JWTs of one operator, with one account."""
    operator, account, system = key("operator"), key("account"), key("account", 2)
    names = ("subs", "data", "payload", "imports", "exports", "conn", "leaf")
    stored = ("mem_storage", "disk_storage", "streams", "consumer")
    limits: dict[str, object] = {**dict.fromkeys(names, -1), "wildcards": True}
    claims: dict[str, object] = {"limits": {**limits, **dict.fromkeys(stored, -1)}}
    own = jwt(operator, operator, {"system_account": system.public})
    return (
        f"operator: {own}\nsystem_account: {system.public}\nresolver: MEMORY\n"
        f"resolver_preload: {{\n"
        f"  {account.public}: {jwt(operator, account, claims)}\n"
        f"  {system.public}: {jwt(operator, system, {'limits': limits})}\n}}\n"
    )


def _encoded(content: bytes) -> str:
    checksum = binascii.crc_hqx(content, 0).to_bytes(2, "little")
    return base64.b32encode(content + checksum).decode().rstrip("=")


def _url_text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
