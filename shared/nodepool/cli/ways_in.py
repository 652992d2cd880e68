"""How programs connect with the credentials of a user, as `nodepool auth` prints it."""

from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from nodepool.auth.accounts import Member, known_as
from nodepool.auth.rights import inbox_prefix
from nodepool.nats.wire.addresses import with_user, without_password


def ways_in(url: str, path: Path, org: str, member: Member) -> Iterator[str]:
    """Yield the credentials of a user, and how `nodepool`, `nats` and nats-py connect with them.

    No line has the secret: each reads the file. Arguments of a program can be read by others on the
    same machine, so the password goes to `nats` in a variable.
    """
    address, prefix, file = without_password(url), inbox_prefix(member.user.name), quote(str(path))
    nats = f"nats --server {address}"
    secret = f"pathlib.Path({str(path)!r}).read_text().split()[-1]"
    extra = ""
    if member.user.proof.key:
        what, nats, own = "key", f"{nats} --nkey {file}", f"NODEPOOL_NKEY_FILE={file}"
        shown, extra = f"nkeys_seed_str={secret}", "[nkeys]"
    else:
        user = known_as(org, member.user)
        what, own = "password", f"NODEPOOL_PASSWORD_FILE={file}"
        nats = f'NATS_USER={user} NATS_PASSWORD="$(tail -n 1 {file})" {nats}'
        shown = f"user={user!r}, password={secret}"
    own = f"NODEPOOL_URL={_own_address(address, org, member)} NODEPOOL_ORG={org} {own}"
    yield f"credentials: {path} (give it to nobody else; only this file has the {what})"
    yield "nodepool:"
    yield f"  {own} nodepool get np"
    yield "nats:"
    yield f"  {nats} --inbox-prefix {prefix} {_example(org, member)}"
    yield f"nats-py{extra}:"
    yield f"  nats.connect({address!r}, {shown}, inbox_prefix=b{prefix!r})"


def _own_address(address: str, org: str, member: Member) -> str:
    """Return the address as `nodepool` needs it: with the name of a user who has a password."""
    return address if member.user.proof.key else with_user(address, known_as(org, member.user))


def _example(org: str, member: Member) -> str:
    if member.may_change:
        return f"req np.cmd.{org}.CLUSTER.POOL.ScaleNodePool '{{\"targetNodes\": 2}}'"
    return f"sub 'np.evt.*.{org}.*.*.*'"
