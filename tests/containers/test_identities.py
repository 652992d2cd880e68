"""Who may come in to the compose file at work, and what becomes of an older log."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from containers.stack import IMAGE_OF_BUS, Stack, docker, until
from nodepool.auth.accounts import SYSTEM_USER
from nodepool.cli.errors import REFUSED, UNREACHABLE
from nodepool.contract.log import LogId
from nodepool.nats.log.api import last_position
from nodepool.nats.log.streams import STREAM, provision
from nodepool.nats.wire.access import NO_ACCESS, Access
from nodepool.nats.wire.connection import connect
from nodepool.nats.wire.errors import ServerUnreachable

pytestmark = pytest.mark.timeout(900)
VIEWER = "/auth/keys/demo/vera.nk"
OF_THE_SERVER = "/etc/nats/auth"
OLD_CLUSTER = """
mkdir -p '/data/cluster/jetstream/$G/streams/NODEPOOL'
exec /bin/sh /bus.sh --config /etc/nats/cluster.conf
"""


async def log_at(url: str, access: Access) -> tuple[LogId, int]:
    """Which log is there, made if there is none, and the position of its newest message."""
    connection = await connect(url, "test", patience_s=30, access=access)
    try:
        return await provision(connection), await last_position(connection, STREAM)
    finally:
        await connection.close()


async def test_who_shows_no_key_cannot_connect(stack: Stack) -> None:
    with pytest.raises(ServerUnreachable, match="refuses"):
        await connect(stack.url, "test", patience_s=5)


def test_the_server_has_no_key_and_no_other_program_can_change_one(stack: Stack) -> None:
    # given the server, and a service
    (server,), (service, _) = stack.containers("nats"), stack.containers("fleet")

    # then one sees accounts without keys, and the other keys that it cannot write
    listed = docker("exec", server["Id"], "ls", OF_THE_SERVER, f"{OF_THE_SERVER}/keys")
    assert "accounts.conf" in listed
    assert ".nk" not in listed
    code = "open('/auth/keys/fleet.nk', 'a')"
    done = subprocess.run(
        ["docker", "exec", service["Id"], "python", "-c", code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Read-only file system" in done.stderr


def test_a_user_that_is_added_in_a_container_comes_in_through_the_gateway(stack: Stack) -> None:
    # given the command line of the operator, here and in a container
    names = ("get", "nodepools", "-o", "name")
    assert stack.run("run", "--rm", "demo", "nodepool", *names).stdout == stack.cli(*names)

    # when a viewer is added as the page says, in an organisation that the server does not know yet
    auth = ("run", "--rm", "auth", "nodepool", "auth")
    stack.run(*auth, "add-organisation", "demo")
    stack.run(*auth, "add-user", "demo", "vera", "--role", "viewer")
    stack.run("run", "--rm", "provision")

    # then the viewer sees what the operator sees, and may change nothing
    key = stack.key(VIEWER)
    until(lambda: stack.works(*names, key=key), "an answer of the gateway")
    assert stack.cli(*names, key=key) == stack.cli(*names)
    scale = stack.start_cli("scale", "nodepool", "batch", "--target", "1", key=key)
    said, _ = scale.communicate(timeout=60)
    assert (scale.returncode, "may not send ScaleNodePool" in said) == (REFUSED, True), said

    # and with a key that is revoked cannot come in
    revoked = stack.run(*auth, "revoke", "demo", "vera", check=False)
    assert (revoked.returncode, "until the server has read" in revoked.stderr) == (
        UNREACHABLE,
        True,
    )
    stack.run("run", "--rm", "provision")
    assert not stack.works(*names, key=key)


def test_the_key_of_the_system_is_no_way_to_the_log(stack: Stack) -> None:
    key = stack.key(f"/auth/keys/{SYSTEM_USER}.nk")

    assert not stack.works("get", "nodepools", key=key)


def test_a_log_from_before_there_were_keys_is_the_log_of_the_platform(
    stack: Stack, checkout: Path
) -> None:
    # given a project with a volume in which a server without accounts has a log
    older = Stack(f"{stack.project}-older", checkout)
    try:
        older.run("create", "--no-build", "nats")
        (volume,) = [name for name in older.left("volume") if name.endswith("_nats-data")]
        ports = f"127.0.0.1:{older.variables['BUS_PORT']}:4222"
        options = ("--rm", "--detach", "--volume", f"{volume}:/data", "--publish", ports)
        start = ("--entrypoint", "nats-server", IMAGE_OF_BUS, "--jetstream", "--store_dir", "/data")
        server = docker("run", *options, *start)
        before = asyncio.run(log_at(older.url, NO_ACCESS))
        docker("stop", server)

        # when the servers are started, and the streams made
        older.run("up", "--detach", "--no-build", "provision")
        until(lambda: older.obstacles() == [], lambda: "; ".join(older.obstacles()))

        # then it is the same log, for those who show a key
        now = asyncio.run(log_at(older.url, Access(nkey_file=str(older.key()))))
        assert now == before
    finally:
        older.down()


def test_a_server_of_a_cluster_does_not_begin_beside_an_older_log(stack: Stack) -> None:
    # given a volume in which a server of a cluster without accounts has a log
    start = ("--entrypoint", "/bin/sh", IMAGE_OF_BUS, "-c", OLD_CLUSTER)

    # when a server with accounts is started on it
    done = subprocess.run(
        ["docker", "run", "--rm", "--network", "none", *start],
        capture_output=True,
        text=True,
        check=False,
    )

    # then it ends, and says what to do
    assert done.returncode == 1
    assert "nodepool backup" in done.stderr
