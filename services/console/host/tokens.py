"""Verifies the ID token of an OpenID provider."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import InvalidClaimError, JoseError, MissingClaimError
from joserfc.jwk import ECKey, GuestProtocol, RSAKey

ALGORITHMS: Final = [
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
]
"""Those with a public key: with `none` or a shared secret anybody could sign."""
LEEWAY_S: Final = 30
"""How far the clocks of the provider and of this machine may differ, in seconds."""
KEYS_MAX: Final = 64
"""The most keys of a provider."""

Key = RSAKey | ECKey


class UnknownKey(Exception):
    """No known key has signed a token."""


class Refused(Exception):
    """A token does not count; the text says why."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a token must say, to be the answer to a request."""

    issuer: str
    client_id: str
    nonce: str
    access_token: str


def read_keys(document: Mapping[str, object]) -> tuple[Key, ...]:
    """Return the keys of a provider that can sign tokens; those of other kinds are left out."""
    given = document.get("keys")
    found = list[Key]()
    for each in given[:KEYS_MAX] if isinstance(given, list) else []:
        kinds: Mapping[object, type[Key]] = {"RSA": RSAKey, "EC": ECKey}
        kind = kinds.get(each.get("kty")) if isinstance(each, dict) else None
        if kind is None or each.get("use", "sig") != "sig":
            continue
        try:
            found.append(kind.import_key(each))
        except (JoseError, ValueError, TypeError, KeyError):
            continue
    return tuple(found)


def verify_token(
    token: str, keys: Sequence[Key], expected: Expected, now: int
) -> dict[str, object]:
    """Return the claims of a token that a provider has signed for a request of the console.

    Raises UnknownKey if none of the keys has signed it, and Refused if it does not count.
    """

    def find_key(signed: GuestProtocol) -> Key:
        return _find_key(keys, signed.headers())

    try:
        read = jwt.decode(token, find_key, algorithms=ALGORITHMS)
        options = {
            "iss": {"essential": True, "value": expected.issuer},
            "aud": {"essential": True, "value": expected.client_id},
            "sub": {"essential": True},
        }
        params = {
            "nonce": expected.nonce,
            "client_id": expected.client_id,
            "access_token": expected.access_token,
        }
        claims = CodeIDToken(read.claims, read.header, options, params)
        claims.validate(now, LEEWAY_S)
    except MissingClaimError as error:
        raise Refused(f"its claim {error.claim} is missing") from None
    except InvalidClaimError as error:
        raise Refused(f"its claim {error.claim} is not what it must be") from None
    except (JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise Refused(f"it cannot be verified ({type(error).__name__})") from None
    if not isinstance(claims["sub"], str) or not isinstance(claims["exp"], int | float):
        raise Refused("its claim sub or exp is not what it must be")
    return dict(claims)


def _find_key(keys: Sequence[Key], header: Mapping[str, object]) -> Key:
    """Return the key that a token names; the only one that fits if it names none."""
    kid = header.get("kid")
    named = [key for key in keys if kid is None or key.kid == kid]
    fitting = [key for key in named if key.as_dict().get("alg") in (None, header.get("alg"))]
    if len(fitting) != 1:
        raise UnknownKey
    return fitting[0]
