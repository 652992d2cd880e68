"""New credentials of users: a seed or a password, each for a file that only its owner may read."""

import secrets
from dataclasses import dataclass, field
from typing import Final

from nodepool.auth.accounts import Proof
from nodepool.auth.rights import inbox_prefix
from nodepool.auth.users import AuthError
from nodepool.nats.wire.credentials import key_pair, new_seed
from nodepool.nats.wire.errors import AccessError

KEY_SUFFIX: Final = ".nk"
PASSWORD_SUFFIX: Final = ".password"
"""How the names of the files end that have a seed, and a password."""
PASSWORD_BYTES: Final = 24
"""How many random bytes a password has; its text is hexadecimal, which needs no quotes anywhere."""
ROUNDS: Final = 4
"""The least that bcrypt has. More rounds protect passwords that somebody could guess; of these,
each attempt of a stranger would only cost the server more time."""
_INSTALL: Final = "needs the package bcrypt: pip install 'nodepool[auth]'"


@dataclass(frozen=True, slots=True)
class Secret:
    """A new seed or password, and what the server knows of it."""

    proof: Proof
    text: str = field(repr=False)


def file_name(user: str, proof: Proof) -> str:
    """Return the name of the file with the credentials of a user."""
    return f"{user}{KEY_SUFFIX if proof.key else PASSWORD_SUFFIX}"


def file_text(secret: Secret, org: str, user: str, title: str) -> str:
    """Return what the file has: whose it is, where replies arrive, and the secret.

    org: the organisation; "" for the platform.
    title: the role, and the cluster of an agent.
    """
    who = f"{org}/{user}" if org else user
    return f"# {who}, {title}\n# inbox prefix: {inbox_prefix(user)}\n{secret.text}\n"


def new_secret(*, by_password: bool = False) -> Secret:
    """Return a new secret; raise AuthError if the package that makes it is missing."""
    return _new_password() if by_password else _new_seed()


def _new_seed() -> Secret:
    seed = new_seed()
    try:
        return Secret(Proof(key_pair("nkey_file", "a new seed", seed).public_key), seed)
    except AccessError as error:
        raise AuthError(f"making keys {error}") from None


def _new_password() -> Secret:
    try:
        import bcrypt
    except ImportError:
        raise AuthError(f"making passwords {_INSTALL}") from None
    password = secrets.token_hex(PASSWORD_BYTES)
    hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(ROUNDS)).decode()
    return Secret(Proof(password=hashed), password)
