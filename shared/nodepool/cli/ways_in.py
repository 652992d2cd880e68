"""How programs connect with the credentials of a user, as `nodepool auth` prints it."""

from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Final

from nodepool.auth.accounts import Member, known_as
from nodepool.auth.plain import nats_command, nats_py_call
from nodepool.nats.wire.addresses import split_addresses, with_user, without_password

_WEB: Final = ("ws", "wss")


def ways_in(url: str, authority: str, path: Path, org: str, member: Member) -> Iterator[str]:
    """Yield the credentials of a user, and how `nodepool`, `nats` and nats-py connect with them.

    authority: the file with the certificates that clients trust; "" without TLS.
    """
    address = _encrypted(url) if authority else without_password(url)
    has_key, file = bool(member.user.proof.key), str(path)
    login = "" if has_key else known_as(org, member.user)
    own = with_user(address, login) if login else address
    settings = f"NODEPOOL_URL={own} NODEPOOL_ORG={org}"
    settings += f" NODEPOOL_{'NKEY' if has_key else 'PASSWORD'}_FILE={quote(file)}"
    settings += f" NODEPOOL_CA_FILE={quote(authority)}" if authority else ""
    shown = address, member.user.name, file, authority
    what = "key" if has_key else "password"
    yield f"credentials: {path} (give it to nobody else; only this file has the {what})"
    yield "nodepool:"
    yield f"  {settings} nodepool get np"
    yield "nats:"
    yield f"  {nats_command(*shown, login=login)} {_example(org, member)}"
    yield f"nats-py{'[nkeys]' if has_key else ''}:"
    yield f"  {nats_py_call(*shown, login=login)}"


def _encrypted(url: str) -> str:
    """Return the addresses so that everything is encrypted or nothing is sent."""
    pieces = [address.rpartition("://") for address in split_addresses(without_password(url))]
    return ",".join(f"{'wss' if scheme in _WEB else 'tls'}://{rest}" for scheme, _, rest in pieces)


def _example(org: str, member: Member) -> str:
    if member.may_change:
        return f"req np.cmd.{org}.CLUSTER.POOL.ScaleNodePool '{{\"targetNodes\": 2}}'"
    return f"sub 'np.evt.*.{org}.*.*.*'"
