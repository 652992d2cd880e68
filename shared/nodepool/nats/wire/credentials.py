"""Nkeys and JWTs in files: what they hold, and until when they are valid.

A user proves who they are with a key: an nkey, or a JWT and its nkey. See
https://docs.nats.io/running-a-nats-service/configuration/securing_nats/auth_intro/nkey_auth and
https://docs.nats.io/using-nats/developer/connecting/creds.
"""

import base64
import binascii
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from nodepool.nats.wire.errors import AccessError
from nodepool.nats.wire.files import content_of

# The package nkeys would accept a damaged seed: it does not verify the checksum.
_USER_SEED = b"\x95\x00"
"""The first bytes of a user's seed; their base32 text begins with `SU`."""
_SEED_BYTES = 36
_USER = b"\xa0"
"""The first byte of a user's public key; its base32 text begins with `U`."""
_BLOCK = r"-{3,}\s*BEGIN %s\s*-{3,}\s+([\w.=-]+)\s+-{3,}\s*END"
_JWT = re.compile(_BLOCK % "NATS USER JWT")
_SEED = re.compile(_BLOCK % "USER NKEY SEED")
_PREFIX_COMMENT = re.compile(r"inbox prefix:\s*(.*)")
_PREFIX = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_INSTALL = "needs the package PyNaCl: pip install 'nodepool[nkeys]'"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """The key pair of a user: the public key as text, and the secret key, which is never shown."""

    public_key: str
    _secret: bytes

    def sign(self, content: bytes) -> bytes:
        """Return the signature of some bytes."""
        from nacl.signing import SigningKey

        signature: bytes = SigningKey(self._secret).sign(content).signature
        return signature

    def __repr__(self) -> str:
        return f"KeyPair({self.public_key})"


def key_pair(field: str, path: str, seed: str) -> KeyPair:
    """Return the key of a seed that was read from a file; raise AccessError for an invalid seed."""
    secret = _secret(field, path, seed)
    try:
        from nacl.signing import SigningKey
    except ImportError:
        raise AccessError(field, _INSTALL) from None
    public = _USER + bytes(SigningKey(secret).verify_key)
    return KeyPair(base64.b32encode(public + _checksum(public)).decode(), secret)


def new_seed() -> str:
    """Return the seed of a new nkey of a user."""
    import secrets  # Imported here, because only making keys needs it.

    content = _USER_SEED + secrets.token_bytes(_SEED_BYTES - 4)
    return base64.b32encode(content + _checksum(content)).decode().rstrip("=")


def nkey_of(path: str) -> KeyPair:
    """Return the key of the seed in a file; raise AccessError if the file cannot be used.

    The lines above the seed may be comments, which begin with `#`.
    """
    lines = [line for line in _lines("nkey_file", path) if not line.startswith("#")]
    if len(lines) != 1:
        found = "holds no seed" if not lines else "holds more than one line"
        text = f"{path} {found}; it must hold one line with a seed, which begins with SU"
        raise AccessError("nkey_file", text)
    return key_pair("nkey_file", path, lines[0])


def comments_of(field: str, path: str) -> Sequence[str]:
    """Return the comments in the file of a seed or a password, without `#`.

    The only line of a file is no comment. Raises AccessError if the file cannot be read.
    """
    lines = _lines(field, path)
    return [line[1:].strip() for line in lines if line.startswith("#") and len(lines) > 1]


def inbox_prefix_of(field: str, path: str) -> str:
    """Return the prefix of replies that a comment in such a file names; "" for none."""
    comments = comments_of(field, path)
    found = [match[1] for comment in comments if (match := _PREFIX_COMMENT.fullmatch(comment))]
    if found and not is_prefix(found[0]):
        text = f"the inbox prefix in {path} cannot begin a subject; write it as _INBOX_name"
        raise AccessError(field, text)
    return found[0] if found else ""


def is_prefix(text: str) -> bool:
    """Return whether a text can be the prefix of the subjects of replies."""
    return _PREFIX.fullmatch(text) is not None


def _lines(field: str, path: str) -> Sequence[str]:
    try:
        lines = content_of(field, path).decode().splitlines()
    except UnicodeDecodeError:
        what = "the seed of an nkey" if field == "nkey_file" else "one line of it"
        raise AccessError(field, f"{path} holds no text; it must hold {what}") from None
    return [line.strip() for line in lines if line.strip()]


def _secret(field: str, path: str, seed: str) -> bytes:
    """Return the 32 secret bytes of a seed; raise AccessError for an invalid seed."""
    try:
        raw = base64.b32decode(seed.encode() + b"=" * (-len(seed) % 8))
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != _SEED_BYTES or raw[0] >> 3 != _USER_SEED[0] >> 3:
        text = f"{path} holds no seed of an nkey; it must be one, which begins with SU"
        raise AccessError(field, text)
    if _checksum(raw[:-2]) != raw[-2:]:
        raise AccessError(field, f"the seed in {path} is damaged; it must be copied whole")
    if raw[:2] != _USER_SEED:
        text = f"the seed in {path} is not that of a user; it must begin with SU"
        raise AccessError(field, text)
    return raw[2:-2]


def _checksum(content: bytes) -> bytes:
    return binascii.crc_hqx(content, 0).to_bytes(2, "little")


def seed_of(path: str) -> str:
    """Return the seed in a credentials file; raise AccessError if the file has no seed."""
    match = _SEED.search(_text(path))
    if match is None:
        raise AccessError("creds_file", f"{path} holds no seed of an nkey; nsc writes one there")
    return match[1]


def jwt_of(path: str, now_s: float | None = None) -> str:
    """Return the JWT in a credentials file; check its claims only if `now_s` is given.

    Raises AccessError if the file has no JWT, or if the JWT has expired or belongs to another key
    than the seed in the file.
    """
    match = _JWT.search(_text(path))
    if match is None:
        raise AccessError("creds_file", f"{path} holds no JWT of a user; nsc writes one there")
    if now_s is not None:
        _check_claims(path, match[1], now_s)
    return match[1]


def jwt_end(path: str) -> datetime | None:
    """Return when the JWT in a credentials file expires; None if the JWT does not expire."""
    _, end = _claims(path, jwt_of(path))
    return end


def _claims(path: str, jwt: str) -> tuple[str, datetime | None]:
    """Return the user of a JWT and its expiry, None if the JWT does not expire."""
    try:
        claims = jwt.split(".")[1]
        data = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        user, end = str(data["sub"]), float(data.get("exp") or 0)
        return user, datetime.fromtimestamp(end, UTC) if end else None
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, OSError):
        raise AccessError(
            "creds_file", f"the JWT in {path} cannot be read; nsc writes it"
        ) from None


def _check_claims(path: str, jwt: str, now_s: float) -> None:
    user, end = _claims(path, jwt)
    if end is not None and end.timestamp() <= now_s:
        text = f"the JWT in {path} expired at {end:%Y-%m-%dT%H:%M:%SZ}; it must be renewed"
        raise AccessError("creds_file", text)
    if key_pair("creds_file", path, seed_of(path)).public_key != user:
        raise AccessError("creds_file", f"the seed in {path} is not that of the JWT beside it")


def _text(path: str) -> str:
    return content_of("creds_file", path).decode("utf-8", "replace")
