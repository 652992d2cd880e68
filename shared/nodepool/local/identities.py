"""The identities of a control plane on one machine: its streams, its older data, its operator."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nodepool.auth.accounts import OPERATOR, PLATFORM
from nodepool.auth.folder import AuthFolder
from nodepool.local.console import report
from nodepool.local.errors import ServerError, UpError
from nodepool.nats.log.streams import provision
from nodepool.nats.wire.access import Access
from nodepool.nats.wire.connection import connect
from nodepool.nats.wire.errors import Conflict, InDoubt, ServerRefusal, ServerUnreachable
from nodepool.nats.wire.installed import authority_link, operator_link
from nodepool.nats.wire.library import NatsError

GLOBAL = "$G"
"""The account of a server whose configuration has no accounts."""


def move_to_platform(data_dir: Path) -> None:
    """Move streams that a server without accounts has stored to the account of the platform.

    No server may use the folder meanwhile. Streams of the platform are never replaced: raises
    ServerError if both have streams, as after a start of a release without accounts.
    """
    old, new = (data_dir / "jetstream" / account for account in (GLOBAL, PLATFORM))
    if not (old / "streams").exists():
        return
    if new.exists():
        raise ServerError(
            f"{old} and {new} both have streams: move the older ones away, and start again"
        )
    old.rename(new)


async def make_streams(url: str, access: Access) -> None:
    """Make the streams that are missing, as the provisioner; raise UpError if that fails."""
    try:
        connection = await connect(url, "nodepool up", access=access)
        try:
            await provision(connection)
        finally:
            await connection.close()
    except (Conflict, InDoubt, ServerRefusal, ServerUnreachable, NatsError, OSError) as error:
        raise UpError(f"cannot make the streams: {error}") from error


def has_members(auth: AuthFolder) -> bool:
    """Return whether an organisation has a user, so that somebody may come to the gateway."""
    try:
        return bool(json.loads(auth.members_file.read_bytes())["members"])
    except (OSError, ValueError, KeyError):
        return False


@contextmanager
def linked_operator(port: int, auth: AuthFolder, authority: Path | None = None) -> Iterator[None]:
    """Link the key of the operator, for the time of the context, where the command line finds it.

    The links of another control plane, which was killed on the same port, are replaced.

    authority: whom to trust; None without TLS.
    """
    key, link = auth.key_file(OPERATOR).absolute(), operator_link(port)
    links = {} if link is None else {link: key, authority_link(link): authority}
    made = dict[Path, Path]()
    try:
        for path, target in links.items():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if target is None:
                path.unlink(missing_ok=True)
                continue
            new = path.with_name(f".{path.name}.{os.getpid()}")
            new.symlink_to(target)
            new.replace(path)
            made[path] = target
    except OSError as error:
        where = f"{error.filename}: {error.strerror}"
        report(f"cannot link {where}: the command line needs NODEPOOL_NKEY_FILE={key}")
    try:
        yield
    finally:
        for path, target in made.items():
            with suppress(OSError):
                if path.readlink() == target:
                    path.unlink()
