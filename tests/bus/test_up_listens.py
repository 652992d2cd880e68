"""`nodepool up --listen`: others come in with TLS, and nobody comes in without."""

import asyncio
import pathlib
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import nats
import pytest

from bus.cli import running
from bus.harness import BINARY, PATIENCE_S, unreachable
from nodepool.auth.folder import AuthFolder
from nodepool.cli.app import run
from nodepool.client import Client
from nodepool.host.settings import SettingsError, read
from nodepool.local.errors import ServerError
from nodepool.local.server import NatsServer
from nodepool.nats.wire.access import Access
from nodepool.nats.wire.connection import connect
from nodepool.nats.wire.errors import AccessError
from support.certificates import certificates, needs_openssl
from support.loopback import listening
from testbed.ports import free_port

ORG, EDITOR = "acme", "alice"
CLEAR = (
    b'INFO {"server_id":"X","version":"2.15.1","max_payload":1048576,"proto":1,"headers":true}\r\n'
)


async def test_others_come_in_with_tls_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given a control plane that listens on every address, with a user of an organisation
    with running(tmp_path, "--listen", "0.0.0.0") as up:
        auth, authority = AuthFolder(tmp_path / "auth"), tmp_path / "tls" / "ca.pem"
        common = ["--dir", str(auth.path), "--url", f"nats://127.0.0.1:{up.port}"]
        user = f"add-user {ORG} {EDITOR} --role editor"
        for line in (
            f"add-organisation {ORG}",
            user,
            f"add-user {ORG} bob --role viewer --password",
        ):
            assert run(["auth", *line.split(), *common]) == 0

        # then what is printed for each leads to the server with TLS, and trusts the authority
        ways = [line for line in capsys.readouterr().out.splitlines() if str(authority) in line]
        assert [f"127.0.0.1:{up.port}" in line and "tls://" in line for line in ways] == [True] * 6
        client = await eval(ways[-1], {"nats": nats, "pathlib": pathlib, "ssl": ssl})
        await client.close()

        alice = Access(ca_file=str(authority), nkey_file=str(auth.key_file(EDITOR, ORG)))

        # when the user connects with TLS, by a name that the certificate has, then that works
        for host in ("localhost", socket.gethostname()):
            connection = await connect(f"tls://{host}:{up.port}", EDITOR, access=alice)
            await connection.close()

        # and the operator's key and whom to trust are found on this machine
        async with Client(f"nats://127.0.0.1:{up.port}") as client:
            await client.nodepools.list()

        # and who trusts another authority, knows another name or sends in the clear does not
        url = f"tls://127.0.0.1:{up.port}"
        reason = "its certificate is not trusted"
        assert reason in (await unreachable(url, reason, Access(nkey_file=alice.nkey_file))).reason
        await unreachable(f"tls://127.0.0.2:{up.port}", "certificate", alice)
        assert await asyncio.to_thread(said_in_the_clear, up.port) == b""
        assert await asyncio.to_thread(strictly_encrypted, up.port, authority) == "TLSv1.3"

    # and every file of the authority is its owner's alone
    modes = {path.name: path.stat().st_mode & 0o777 for path in authority.parent.iterdir()}
    assert modes == dict.fromkeys(("ca.key", "ca.pem", "server.key", "server.pem"), 0o600)
    assert authority.parent.stat().st_mode & 0o777 == 0o700
    assert [line for line in up.printed if f"tls://HOST:{up.port}" in line]


async def test_who_is_told_that_there_is_no_tls_sends_nothing(tmp_path: Path) -> None:
    # given somebody on the network who answers in the place of a server, and offers no TLS
    key = AuthFolder(tmp_path)
    key.init()
    async with impostor() as (port, received):
        # when a client that asks for TLS connects, then it is refused, and has sent nothing
        url = f"tls://user:secret@127.0.0.1:{port}"
        await unreachable(url, "the server offers no TLS, which tls:// asks for")
        await unreachable(f"tls://127.0.0.1:{port}", "offers no TLS", key.access("operator"))
        assert b"".join(received) == b""


@needs_openssl
@pytest.mark.parametrize("shown", ["ca_file", "cert_file"])
async def test_who_names_certificates_never_talks_to_a_server_without_tls(
    tmp_path: Path, shown: str
) -> None:
    # given a client with certificates and a password, and addresses that do not ask for TLS
    made, password = certificates(tmp_path), tmp_path / "password"
    password.write_text("canary-secret\n")
    key = str(made.key) if shown == "cert_file" else ""
    path = str(made.ca if shown == "ca_file" else made.certificate)
    access = replace(Access(password_file=str(password), key_file=key), **{shown: path})

    # when somebody on the network answers in the place of the server
    async with impostor() as (port, received):
        reason = "the server offers no TLS, which the certificates of the client ask for"
        for scheme in ("nats://", ""):
            await unreachable(f"{scheme}alice@127.0.0.1:{port}", reason, access)

        # then that one has received nothing
        assert b"".join(received) == b""

        # and an address that can never be encrypted is refused with the one to use
        with pytest.raises(AccessError, match="is not encrypted; write it as wss://HOST:PORT"):
            await connect(f"ws://alice@127.0.0.1:{port}", "alice", access=access)
        named = {f"NODEPOOL_{shown.upper()}": path, "NODEPOOL_KEY_FILE": key}
        with pytest.raises(SettingsError, match=f"^NODEPOOL_{shown.upper()}: "):
            read({**named, "NODEPOOL_URL": f"ws://127.0.0.1:{port}"})
        assert b"".join(received) == b""


async def test_nothing_beyond_this_machine_is_listened_to_without_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a machine without the package that makes certificates
    monkeypatch.setitem(sys.modules, "nodepool.local.authority", None)

    # when a server is to listen for others, then it is refused with the command that mends it
    server = NatsServer(tmp_path, free_port(), BINARY, listen="0.0.0.0")
    with pytest.raises(ServerError, match=r"without TLS .* run `pip install cryptography`"):
        server.start()
    assert not server.running

    # and this machine alone needs no certificate
    with NatsServer(tmp_path, free_port(), BINARY) as local:
        assert (local.url[:17], local.authority) == ("nats://127.0.0.1:", None)


@pytest.mark.parametrize("address", ["", "tls://bus", "bus:4222", "1.2.3.4/8", "-x", 'a"b'])
def test_what_is_no_address_is_refused(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["up", f"--listen={address}"]) == 2
    assert "is not the name or IP address of an interface" in capsys.readouterr().err


def said_in_the_clear(port: int) -> bytes:
    """What the server says to a client that ignores that TLS is needed, beyond its greeting."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
        stream = client.makefile("rb")
        assert b'"tls_required":true' in stream.readline()
        client.sendall(b'CONNECT {"verbose":false,"tls_required":false}\r\nPING\r\n')
        with stream:
            try:
                return stream.read()
            except ConnectionError:
                return b""


def strictly_encrypted(port: int, authority: Path) -> str:
    """The version of TLS with which a client connects that takes no short cut in its checks."""
    context = ssl.create_default_context(cafile=str(authority))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
        while client.recv(1) != b"\n":
            pass
        with context.wrap_socket(client, server_hostname="127.0.0.1") as encrypted:
            return encrypted.version() or ""


@asynccontextmanager
async def impostor() -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that greets without TLS; its port, and what clients have sent to it."""
    received = list[bytes]()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CLEAR)
        received.append(await reader.read())

    async with listening(greet) as port:
        yield port, received
