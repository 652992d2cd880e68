"""Prepares the servers for the services: `python -m nodepool.host.provision`.

The servers read their accounts again, and the streams that are missing are made. With
`NODEPOOL_ACCOUNTS_FILE`, that is done again whenever the file changes, until the process ends; with
the argument `once`, it is not.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from nodepool.auth.accounts import PROVISIONER, SYSTEM_USER
from nodepool.host.process import ending_with_a_line
from nodepool.host.settings import PREFIX, Settings, read
from nodepool.nats.log.streams import provision
from nodepool.nats.wire.access import PLACEHOLDER, Access
from nodepool.nats.wire.addresses import split_addresses, without_password
from nodepool.nats.wire.connection import connect
from nodepool.nats.wire.errors import InDoubt, ServerRefusal, ServerUnreachable
from nodepool.nats.wire.library import NatsError

NAME = "nodepool.host.provision"
FAULTS = (InDoubt, NatsError, OSError, ServerRefusal, ServerUnreachable)
"""The errors of servers, which may be over soon."""
RELOADS = 2
"""How often a server reads its accounts: at the second time, new imports find their exports."""
REPLY_S = 10.0
"""How long a server may take to read its accounts, in seconds."""
PATIENCE_S = 60.0
"""How long to try again, in seconds: servers of a new cluster first find each other."""
PAUSE_S = 1.0
ACCOUNTS_FILE = f"{PREFIX}ACCOUNTS_FILE"
ONCE = "once"


async def prepare_patiently(settings: Settings) -> None:
    """Prepare the servers; try again for `PATIENCE_S` seconds, then raise the last error."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            await prepare(settings)
            return
        except FAULTS as error:
            if time.monotonic() >= deadline:
                raise
            sys.stderr.write(f"{NAME}: {error}; trying again\n")
        await asyncio.sleep(PAUSE_S)


async def prepare_at_changes(settings: Settings, accounts: Path) -> None:
    """Prepare the servers now, and whenever the file with their accounts has changed.

    What fails is tried again, without limit.
    """
    prepared = b""
    while True:
        try:
            content = await asyncio.to_thread(accounts.read_bytes)
            if content != prepared:
                await prepare(settings)
                prepared = content
                sys.stderr.write(f"{NAME}: prepared, as {accounts} says\n")
        except FAULTS as error:
            sys.stderr.write(f"{NAME}: {error}; trying again\n")
        await asyncio.sleep(PAUSE_S)


async def prepare(settings: Settings) -> None:
    """Make every server read its accounts, if a key of the system is named; make the streams.

    The system's key is named if `{service}` in `settings.access.nkey_file` stands for the user. A
    server that does not run is left out: it reads its accounts when it starts. Raises the errors of
    `connect`, `reload_accounts` and `provision`.
    """
    if PLACEHOLDER in settings.access.nkey_file:
        for address in split_addresses(settings.url):
            try:
                await reload_accounts(address, settings.access.of(SYSTEM_USER))
            except ServerUnreachable as error:
                sys.stderr.write(f"{NAME}: {error}; going on without this server\n")
    access = settings.access.of(PROVISIONER)
    connection = await connect(settings.url, NAME, access=access)
    try:
        await provision(connection, settings.replicas)
    finally:
        await connection.close()


async def reload_accounts(address: str, access: Access) -> None:
    """Make one server read its configuration again, with the accounts that it includes.

    access: what a user of the system shows. Raises ServerRefusal if the server keeps its accounts.
    """
    connection = await connect(address, NAME, access=access)
    try:
        subject = f"$SYS.REQ.SERVER.{connection._server_info['server_id']}.RELOAD"
        for _ in range(RELOADS):
            reply = json.loads((await connection.request(subject, b"", timeout=REPLY_S)).data)
            if "error" in reply:
                why = reply["error"].get("description")
                text = f"{without_password(address)} keeps its accounts: {why}"
                raise ServerRefusal(int(reply["error"].get("code", 0)), text)
    finally:
        await connection.close()


async def main(environment: Mapping[str, str], arguments: Sequence[str]) -> None:
    """Prepare the servers that the settings name: once, or as long as the process runs."""
    settings, accounts = read(environment), environment.get(ACCOUNTS_FILE, "")
    if accounts and ONCE not in arguments:
        await prepare_at_changes(settings, Path(accounts))
    else:
        await prepare_patiently(settings)


if __name__ == "__main__":
    with ending_with_a_line(NAME):
        asyncio.run(main(os.environ, sys.argv[1:]))
