"""The addresses of NATS servers, as in `NODEPOOL_URL`: one, or several separated by commas."""

from collections.abc import Sequence

SCHEMES = ("nats", "tls", "ws", "wss")
"""How an address may begin; `nats://` may be left out. `tls` and `wss` are encrypted."""
_WEB = ("ws", "wss")
_FORM = "write it as nats://HOST:PORT"


def split_addresses(url: str) -> Sequence[str]:
    """Return the addresses in a text, each without whitespace around it."""
    return [address.strip() for address in url.split(",")]


def without_password(url: str) -> str:
    """Return the addresses without the user and password that each may hold."""
    return ",".join(map(_without_password, split_addresses(url)))


def with_user(url: str, user: str) -> str:
    """Return the addresses, none of which has a user yet, with one in each."""
    pieces = [address.rpartition("://") for address in split_addresses(url)]
    return ",".join(f"{scheme}{mark}{user}@{rest}" for scheme, mark, rest in pieces)


def _without_password(address: str) -> str:
    scheme, mark, rest = address.rpartition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


def user_of(address: str) -> str:
    """Return the user of an address with its password, as written there; "" if it has no user."""
    return address.rpartition("://")[2].rpartition("@")[0]


def address_fault(url: str) -> str | None:
    """Return why a text does not hold addresses of NATS servers, as one clause; None if it does."""
    pieces = url.split(",")
    for number, piece in enumerate(pieces, 1):
        if not _is_address(piece.strip()):
            return f"{_format_piece(url, piece, number)} is not the address of a server; {_FORM}"
    if len({piece.strip().partition("://")[0] in _WEB for piece in pieces}) > 1:
        return "ws:// and wss:// cannot stand beside other addresses; use one kind for all servers"
    return None


def _format_piece(url: str, piece: str, number: int) -> str:
    """Return the faulty piece, or only its number or host if a password may be in the text."""
    if "@" not in url:
        return repr(piece)
    return repr(piece.rpartition("@")[2]) if piece == url else f"address {number}"


def _is_address(address: str) -> bool:
    from urllib.parse import urlsplit

    if not address.isprintable() or any(character.isspace() for character in address):
        return False
    try:
        parts = urlsplit(address if "://" in address else f"nats://{address}")
        if parts.port == 0 or parts.scheme not in SCHEMES or not parts.hostname:
            return False
    except ValueError:  # The port is not a number up to 65535, or the host is not valid.
        return False
    if parts.query or parts.fragment or (parts.path.strip("/") and parts.scheme not in _WEB):
        return False
    return _is_host(parts.hostname)


def _is_host(host: str) -> bool:
    """Return whether a text may be a host name or an IP address with a scope such as `%eth0`."""
    from re import fullmatch

    return len(host) <= 253 and fullmatch(r"[\w.-]+|[0-9a-f:.]+(%[\w.-]+)?", host) is not None
