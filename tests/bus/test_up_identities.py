"""Who may come in where `nodepool up` runs: nobody without a key, and each with its own."""

import json
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from bus.cli import running
from bus.harness import (
    BINARY,
    connected,
    limit,
    outcome,
    read_all,
    send,
    serving,
    unreachable,
    until,
)
from nodepool.auth.folder import AuthFolder
from nodepool.cli.app import run
from nodepool.client import Client, Unreachable
from nodepool.local.errors import ServerError
from nodepool.local.server import NatsServer
from nodepool.nats.wire.access import Access
from nodepool.nats.wire.connection import Connection, connect
from nodepool.nats.wire.installed import access_to, operator_link
from nodepool.nats.wire.library import NatsError
from quota.decide import SERVICE as QUOTA
from support.constants import H100, ZONE
from testbed.ports import free_port

ORG, EDITOR = "acme", "alice"


async def test_who_shows_no_key_is_refused_and_nobody_else_is(tmp_path: Path) -> None:
    # given a control plane on this machine
    with running(tmp_path) as up:
        # when somebody connects without a key, then that is refused
        url = f"nats://127.0.0.1:{up.port}"
        error = await unreachable(url, "credentials")
        assert error.reason == "the server refuses the user, password or credentials"

        # and the command line and programs of this user find the key of the operator
        assert operator_link(up.port) == Path(access_to(url, Access()).nkey_file)
        async with Client(url) as client:
            await client.quotas.set(ZONE, H100, 5)

        # and what another access says comes first
        with pytest.raises(Unreachable):
            async with Client(url, access=Access(inbox_prefix="_INBOX_other")):
                pass

    # and once it has stopped, there is no link any more
    link = operator_link(up.port)
    assert link is not None
    assert not link.is_symlink()

    # and no service has waited for streams, and the server has denied nothing
    logs = logs_of(tmp_path)
    assert "not provisioned" not in logs
    assert "bus error" not in logs
    assert "Violation" not in (tmp_path / "nats-server.log").read_text()


def logs_of(folder: Path) -> str:
    """Return what all services have logged."""
    return "".join(path.read_text() for path in folder.glob("logs/*.log"))


async def test_a_link_that_leads_nowhere_is_ignored(tmp_path: Path) -> None:
    # given the link of a control plane whose folder was removed
    link = operator_link(4222, {"XDG_CONFIG_HOME": str(tmp_path)})
    assert link is not None
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "gone")

    # when its address is asked for, then there is no key to show
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        assert access_to("nats://127.0.0.1", Access()) == Access()

        # and where the link leads to a key, it is shown at an address of this machine only
        (tmp_path / "gone").touch()
        shown = Access(nkey_file=str(link))
        assert [access_to(f"{host}:4222", Access()) for host in ("localhost", "tls://[::1]")] == [
            shown,
            shown,
        ]
        for url in ("nats://bus:4222", "nats://me@127.0.0.1:4222", "nats://127.0.0.1:4223"):
            assert access_to(url, Access()) == Access()


async def test_a_log_that_was_made_without_accounts_goes_on_with_users_of_organisations(
    tmp_path: Path,
) -> None:
    # given a log that a server without accounts has stored
    with NatsServer(tmp_path, free_port(), BINARY) as before:
        async with (
            connected(before.url) as connection,
            serving(QUOTA, before, tmp_path / "quota.log"),
        ):
            await send(connection, limit(7), "old")
            await outcome(connection, "old")
            entries = await read_all(connection)

    # when a control plane starts in the same folder
    with running(tmp_path) as up:
        async with Client(f"nats://127.0.0.1:{up.port}", org=ORG) as client:
            now = await read_all(client.session.connection)

            # then everything is there, and is shown
            assert [entry[:4] for entry in now[: len(entries)]] == [entry[:4] for entry in entries]
            await until(lambda: _has_quota(client, f"{ZONE}.{H100}"))

        # and there is no gateway, since no organisation has a user
        assert not [line for line in up.printed if "gateway" in line]

        # when an organisation gets an editor
        auth = AuthFolder(tmp_path / "auth")
        for line in (f"add-organisation {ORG}", f"add-user {ORG} {EDITOR} --role editor"):
            assert run(["auth", *line.split(), "--dir", str(auth.path)]) == 0

        # then its command comes in through the gateway, which has started meanwhile
        access = auth.access(EDITOR, ORG)
        alice = await connect(f"nats://127.0.0.1:{up.port}", EDITOR, patience_s=30, access=access)
        reply = list[Msg]()
        await until(lambda: _has_reply(alice, reply))
        await alice.close()
        assert json.loads(reply[0].data)["position"] > 0


def test_no_log_is_left_behind_without_a_word(tmp_path: Path) -> None:
    # given a folder in which a server with accounts and a server without have stored streams
    for account in ("$G", "PLATFORM"):
        (tmp_path / "jetstream" / account / "streams" / "NODEPOOL").mkdir(parents=True)

    # when a server with accounts starts there, then it refuses, names both, and moves nothing
    with pytest.raises(ServerError, match="both have streams: move the older ones away"):
        NatsServer(tmp_path, free_port(), BINARY, has_accounts=True).start()
    assert (tmp_path / "jetstream" / "$G" / "streams" / "NODEPOOL").is_dir()


async def _has_quota(client: Client, key: str) -> bool:
    """Whether the read model has the only quota of an organisation."""
    return [quota.key for quota in await client.quotas.list()] == [key]


async def _has_reply(connection: Connection, reply: list[Msg]) -> bool:
    """Whether the gateway replies to a command, which is kept in `reply`."""
    content = json.dumps({"targetNodes": 1}).encode()
    try:
        subject = f"np.cmd.{ORG}.prod.training.ScaleNodePool"
        reply.append(await connection.request(subject, content, timeout=1))
    except (NatsError, OSError):
        return False
    return True
