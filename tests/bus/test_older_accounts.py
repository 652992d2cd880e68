"""A running installation with the accounts of an older release: services beside JetStream."""

import re
from pathlib import Path

from nats.errors import NoRespondersError

from bus.accounts import ORG, SYSTEM_USER, guarded_server
from bus.guarded_gateway import at_work, listen, user
from bus.harness import PATIENCE_S, limit, outcome, read_all, send, until
from nodepool.auth.accounts import OPERATOR, PLATFORM, SPEAKERS
from nodepool.host.provision import reload_accounts
from nodepool.nats.wire.connection import Connection

BLOCK = r"  {} {{\n.*?\n  }}\n"
LIST = r"    {}: \[\n(.*?)    \]\n"


def in_one_account(accounts: str) -> str:
    """The same users with the same rights, the services in the account of the platform."""
    speakers = _found(BLOCK.format(SPEAKERS), accounts)
    exports = _found(LIST.format("exports"), speakers)
    exports = re.sub(rf'.*accounts: \["{PLATFORM}"\].*\n', "", exports)
    platform = _found(BLOCK.format(PLATFORM), accounts)
    users = _found(LIST.format("users"), platform) + _found(LIST.format("users"), speakers)
    lists = f"    exports: [\n{exports}    ]\n    users: [\n{users}    ]\n"
    joined = f"  {PLATFORM} {{\n    jetstream: enabled\n{lists}  }}\n"
    rest = accounts.replace(speakers, "").replace(platform, joined)
    return rest.replace(f"account: {SPEAKERS},", f"account: {PLATFORM},")


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.DOTALL)
    assert found is not None, pattern
    return found.group(found.lastindex or 0)


async def is_answered(viewer: Connection) -> bool:
    """Whether the gateway answers; it reconnects, as the server has moved it to another account."""
    try:
        reply = await viewer.request(f"np.api.{ORG}.get", b"{}", timeout=PATIENCE_S)
    except NoRespondersError:
        return False
    return bool(reply.data)


async def test_services_and_users_go_on_while_the_server_takes_the_accounts_of_this_release(
    tmp_path: Path,
) -> None:
    accounts = tmp_path / "accounts.conf"
    with guarded_server(tmp_path) as server:
        # given a server with accounts as an earlier release wrote them
        await server.provision()
        system, text = server.access(SYSTEM_USER), accounts.read_text()
        accounts.write_text(in_one_account(text))
        await reload_accounts(server.url, system)

        # and services, a gateway, and a viewer at work
        async with (
            user(server, OPERATOR) as operator,
            user(server, "viewer") as viewer,
            at_work(server, tmp_path, "quota", "aggregator"),
        ):
            heard = await listen(viewer, f"np.evt.*.{ORG}.*.*.*")
            await send(operator, limit(1), "c1")
            await outcome(operator, "c1")
            await until(lambda: len(heard) == 2)
            before = await read_all(operator)

            # when the server takes the accounts of this release
            accounts.write_text(text)
            await reload_accounts(server.url, system)

            # then the log is the same, commands are done, and the viewer hears and is answered
            await send(operator, limit(2), "c2")
            assert (await outcome(operator, "c2"))["type"] == "CommandAccepted"
            await until(lambda: len(heard) == 4)
            await until(lambda: is_answered(viewer))
            log = await read_all(operator)
            assert log[: len(before)] == before
        assert server.violations() == []
