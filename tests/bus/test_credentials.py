"""What is shown to a server that asks who connects, and that it is read again for each time."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from bus.harness import unreachable, until
from bus.tls import HOST, running
from nodepool.client import Client
from nodepool.nats.log import api
from nodepool.nats.log.streams import STREAM, provision
from nodepool.nats.wire.access import Access
from nodepool.nats.wire.connection import Connection, connect
from support.certificates import Certificates, certificates, client_certificate, needs_openssl
from support.nats_users import credentials, key, operator_settings, user_jwt
from testbed.ports import free_port

DENIED = "the server refuses the user, password or credentials"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates that all tests share, with two of clients."""
    folder = tmp_path_factory.mktemp("certificates")
    made = certificates(folder)
    client_certificate(folder, "client")
    client_certificate(folder, "next")
    return made


def verified(made: Certificates) -> str:
    """The settings of a server that takes clients with a certificate only."""
    return (
        f'tls {{ cert_file: "{made.certificate}", key_file: "{made.key}", ca_file: "{made.ca}", '
        "verify: true, timeout: 5 }"
    )


def of_client(made: Certificates) -> Access:
    """The files of a client."""
    client = made.ca.with_name("client")
    return Access(str(made.ca), f"{client}.pem", f"{client}.key")


def written(path: Path, content: str) -> str:
    path.write_text(content)
    return str(path)


def remove(path: str) -> None:
    Path(path).unlink()


async def works(connection: Connection) -> None:
    """Asserts that the connection may do what a service does."""
    await provision(connection)
    assert await api.last_position(connection, STREAM) == 0


@needs_openssl
async def test_a_server_that_verifies_clients_is_used_with_a_certificate(
    tmp_path: Path, made: Certificates
) -> None:
    # given a server that asks for a certificate
    port = free_port()
    url = f"tls://{HOST}:{port}"
    with running(tmp_path, port, verified(made)):
        # when a connection shows one
        connection = await connect(url, "test", access=of_client(made))

        # then it works
        await works(connection)
        await connection.close()

        # and one that shows none is told what is missing
        missing = "certificate required"
        assert missing in (await unreachable(url, missing, Access(str(made.ca)))).reason


@needs_openssl
async def test_a_renewed_certificate_is_shown_at_the_next_connection(
    tmp_path: Path, made: Certificates
) -> None:
    # given a connection with a certificate, which names its user
    port = free_port()
    own = Access(str(made.ca), str(tmp_path / "own.pem"), str(tmp_path / "own.key"))

    def renew(name: str) -> None:
        for path in (own.cert_file, own.key_file):
            shutil.copy(made.ca.with_name(name + Path(path).suffix), path)

    renew("client")
    users = "authorization { users: [{ user: %s }] }"
    settings = verified(made).replace("verify:", "verify_and_map:")
    with running(tmp_path, port, settings + "\n" + users % '"CN=client"'):
        connection = await connect(f"tls://{HOST}:{port}", "test", access=own)

    # when the server takes another one only, which is not there yet
    await until(lambda: not connection.is_connected)
    with running(tmp_path, port, settings + "\n" + users % '"CN=next"'):
        await until(lambda: DENIED in connection.fault)
        remove(own.key_file)
        await until(lambda: f"cannot read {own.key_file}: No such file" in connection.fault)

        # then it is used as soon as it is
        renew("next")
        await until(lambda: connection.is_connected)
        await works(connection)
        await connection.close()


async def test_a_password_in_a_file_is_read_again(tmp_path: Path) -> None:
    # given a connection with a password from a file
    port, user = free_port(), 'authorization { user: "a b", password: %s }'
    access = Access(password_file=written(tmp_path / "password", "first\n"))
    url = f"nats://a%20b@{HOST}:{port}"
    with running(tmp_path, port, user % "first"):
        connection = await connect(url, "test", access=access)
        await works(connection)

    # when the server has another one
    await until(lambda: not connection.is_connected)
    with running(tmp_path, port, user % "second"):
        await until(lambda: DENIED in connection.fault)

        # then it is used as soon as the file has it
        written(tmp_path / "password", "second\n")
        await until(lambda: connection.is_connected)
        await connection.close()

        # and one that has never been right says no more than that
        written(tmp_path / "password", "hunter2")
        assert (await unreachable(url, DENIED, access)).reason == DENIED


async def test_a_token_in_a_file_is_used_where_the_address_names_no_user(tmp_path: Path) -> None:
    port = free_port()
    access = Access(password_file=written(tmp_path / "token", "t0ken"))
    with running(tmp_path, port, 'authorization { token: "t0ken" }'):
        connection = await connect(f"nats://{HOST}:{port}", "test", access=access)
        await works(connection)
        await connection.close()


def nkey_server(tmp_path: Path) -> tuple[str, Access]:
    return (
        f"authorization {{ users: [{{ nkey: {key('user').public} }}] }}",
        Access(nkey_file=written(tmp_path / "seed", key("user").seed + "\n")),
    )


def jwt_server(tmp_path: Path) -> tuple[str, Access]:
    user = key("user")
    text = credentials(user, user_jwt(user))
    return operator_settings(), Access(creds_file=written(tmp_path / "user.creds", text))


@pytest.mark.parametrize("made_by", [nkey_server, jwt_server])
async def test_a_user_with_an_nkey_or_a_jwt_is_taken(
    tmp_path: Path, made_by: Callable[[Path], tuple[str, Access]]
) -> None:
    pytest.importorskip("nacl", reason="needs the package PyNaCl")

    # given a server that knows a user by its nkey, or by the JWT of its account
    port = free_port()
    settings, access = made_by(tmp_path)
    url = f"nats://{HOST}:{port}"
    with running(tmp_path, port, settings):
        # when a connection signs what the server asks
        connection = await connect(url, "test", access=access)

        # then it works, and does so again with a new connection of a program
        await works(connection)
        await connection.close()
        async with Client(url, access=access) as client:
            assert await client.nodepools.list() == []

        # and another user is refused
        other = Access(nkey_file=written(tmp_path / "other", key("user", 2).seed))
        for shown in (other, Access()):
            assert (await unreachable(url, DENIED, shown)).reason == DENIED


@needs_openssl
def test_every_program_uses_the_same_settings(tmp_path: Path, made: Certificates) -> None:
    # given a server that verifies certificates, and asks for a password
    port = free_port()
    access = asdict(of_client(made)) | {"password_file": written(tmp_path / "password", "secret")}
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
        "NODEPOOL_URL": f"tls://services@{HOST}:{port}",
        **{f"NODEPOOL_{name.upper()}": value for name, value in access.items()},
    }
    password = 'authorization { user: "services", password: "secret" }'

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "nodepool.cli", *words],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )

    with running(tmp_path, port, verified(made) + "\n" + password):
        # when a service and the command line connect, which waits until the service is at work
        register = ("register", "cluster", "prod", "--zone", "US-EAST-04A")
        with subprocess.Popen([sys.executable, "-m", "validator"], env=environment) as service:
            done = run(*register, "--request-timeout", "60s")
            service.terminate()
            assert service.wait() == 0

        # then both do their work
        assert (done.stdout, done.stderr, done.returncode) == ("cluster/prod created\n", "", 0)

        # and what keeps them from it is said
        environment["NODEPOOL_KEY_FILE"] = str(made.key)
        failed = run("get", "nodepools")
        assert failed.returncode == 2
        assert failed.stderr.startswith(
            f"error: NODEPOOL_KEY_FILE: the key in {made.key} is not that of the certificate in"
            f" {access['cert_file']} "
        )
