"""What prepares the servers of an installation: their accounts are read again, streams are made."""

import asyncio
from pathlib import Path

import pytest

from bus.harness import BINARY, PATIENCE_S
from nodepool.auth.accounts import GATEWAY, OPERATOR
from nodepool.auth.users import new_member
from nodepool.contract.door import door_of
from nodepool.host.provision import prepare, prepare_at_changes, prepare_patiently
from nodepool.host.settings import Settings
from nodepool.local.server import NatsServer
from nodepool.nats.log.api import last_position
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.access import PLACEHOLDER, Access
from nodepool.nats.wire.connection import connect
from nodepool.nats.wire.errors import ServerRefusal, ServerUnreachable
from nodepool.nats.wire.library import Msg
from nodepool.nats.wire.waiting import cancel
from testbed.ports import free_port

ORG, NAME = "acme", "alice"
ASKED = f"np.api.{ORG}.List"


def settings(server: NatsServer, url: str = "") -> Settings:
    """The settings of the program that prepares a server."""
    key = str(server.auth.key_file(PLACEHOLDER))
    return Settings(url or server.url, access=Access(nkey_file=key))


def add_user(server: NatsServer) -> None:
    """Add a user in a new organisation, of which the server does not hear."""
    server.auth.change(lambda users: users.with_organisation(ORG))
    server.auth.add_member(ORG, lambda key: new_member(NAME, key, "viewer"))


async def test_a_new_organisation_has_its_door_and_the_log_is_there(tmp_path: Path) -> None:
    # given a server without streams, which does not know the user of a new organisation
    with NatsServer(tmp_path, free_port(), BINARY, has_accounts=True) as server:
        add_user(server)
        user = server.auth.access(NAME, ORG)
        with pytest.raises(ServerUnreachable):
            await connect(server.url, NAME, patience_s=2, access=user)

        # when it is prepared, beside another one that does not run
        gone = f"nats://127.0.0.1:{free_port()}"
        await prepare(settings(server, f"{gone},{server.url}"))

        # then the log is there
        operator = await connect(server.url, OPERATOR, access=server.auth.access(OPERATOR))
        assert await last_position(operator, STREAM) == 0

        # and what the user asks comes to the gateway, and the answer back
        async def answer(message: Msg) -> None:
            await message.respond(b"{}")

        gateway = await connect(server.url, GATEWAY, access=server.auth.access(GATEWAY))
        await gateway.subscribe(door_of(ASKED), cb=answer)
        await gateway.flush()
        alice = await connect(server.url, NAME, access=user)
        assert (await alice.request(ASKED, b"{}", timeout=PATIENCE_S)).data == b"{}"
        for connection in (operator, gateway, alice):
            await connection.close()


async def test_a_server_that_cannot_use_its_accounts_keeps_them_and_says_why(
    tmp_path: Path,
) -> None:
    # given a server whose accounts cannot be read any more
    with NatsServer(tmp_path, free_port(), BINARY, has_accounts=True) as server:
        server.auth.accounts_file.write_text("accounts {")

        # when it is prepared, then that ends with an error that names the server
        with pytest.raises(ServerRefusal, match=rf"{server.url} keeps its accounts: .*accounts"):
            await prepare(settings(server))


async def test_a_server_that_comes_later_is_waited_for(tmp_path: Path) -> None:
    # given a program that prepares a server which does not run yet
    server = NatsServer(tmp_path, free_port(), BINARY, has_accounts=True)
    server.auth.init()
    preparing = asyncio.create_task(prepare_patiently(settings(server)))

    # when it starts, then it is prepared
    try:
        await asyncio.to_thread(server.start)
        await preparing
    finally:
        server.stop()


async def test_with_one_key_the_streams_alone_are_made(tmp_path: Path) -> None:
    # given the key of the provisioner, and no other
    with NatsServer(tmp_path, free_port(), BINARY, has_accounts=True) as server:
        add_user(server)
        await prepare(Settings(server.url, access=server.auth.access("provisioner")))

        # then the streams are there, and the server has not read its accounts
        operator = await connect(server.url, OPERATOR, access=server.auth.access(OPERATOR))
        assert await last_position(operator, STREAM) == 0
        await operator.close()
        with pytest.raises(ServerUnreachable):
            await connect(server.url, NAME, patience_s=2, access=server.auth.access(NAME, ORG))


async def test_a_user_comes_in_once_the_accounts_have_changed_and_a_revoked_one_does_not(
    tmp_path: Path,
) -> None:
    # given a server that is prepared whenever its accounts change
    with NatsServer(tmp_path, free_port(), BINARY, has_accounts=True) as server:
        accounts = server.auth.accounts_file
        preparing = asyncio.create_task(prepare_at_changes(settings(server), accounts))
        try:
            # when a user is added
            add_user(server)
            shown = server.auth.access(NAME, ORG)
            user = await connect(server.url, NAME, patience_s=30, access=shown)

            # and revoked
            server.auth.revoke(NAME, ORG)

            # then it was let in, and is cut off
            async with asyncio.timeout(PATIENCE_S):
                while user.is_connected:  # noqa: ASYNC110  # The client has no callback for it.
                    await asyncio.sleep(0.05)
            await user.close()
        finally:
            await cancel(preparing)
