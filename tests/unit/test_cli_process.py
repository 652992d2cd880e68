"""The `nodepool` command as a process: its output, and Ctrl-C."""

import math
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nodepool.cli.app import run
from nodepool.local.ports import HOST

ENVIRONMENT = {
    **{name: text for name, text in os.environ.items() if not name.startswith("NODEPOOL_")},
    "PYTHONPATH": os.pathsep.join(sys.path),
}
PROGRAM = [sys.executable, "-m", "nodepool.cli"]
FULL = Path("/dev/full")
ROUNDS = 3
"""How often a time limit is tried on a machine that may be busy; the best round counts."""


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
def test_an_error_that_cannot_be_written_is_an_exit_code() -> None:
    with FULL.open("w") as errors:
        done = subprocess.run(
            [*PROGRAM, "get", "widgets"], stderr=errors, env=ENVIRONMENT, check=False
        )

    assert done.returncode == 2


@pytest.mark.parametrize(
    "line",
    ["get np", "get np -w", "apply -f {file}", "scale np a --target 1", "edit np a", "delete np a"],
)
def test_ctrl_c_twice_at_once_ends_every_verb_without_a_traceback(
    line: str, tmp_path: Path
) -> None:
    file = tmp_path / "a.json"
    file.write_text(
        '{"apiVersion": "compute.coreweave.com/v1alpha1", "kind": "NodePool",'
        ' "metadata": {"name": "a"}, "spec": {"instanceType": "t", "targetNodes": 1}}'
    )
    # given a command that waits for a server, which is connected and says nothing
    with socket.create_server((HOST, 0)) as server:
        url = f"nats://{HOST}:{server.getsockname()[1]}"
        process = subprocess.Popen(
            [*PROGRAM, "--url", url, *line.format(file=file).split()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
            text=True,
        )
        connection, _ = server.accept()

        # when Ctrl-C is pressed twice
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)

        # then it ends at once
        printed = process.communicate(timeout=30)
        connection.close()
    assert (process.returncode, printed) == (130, ("", ""))


@pytest.mark.parametrize("line", ["apply -f -", "get -f -", "patch np a --patch-file -"])
def test_an_input_that_is_closed_is_an_error_in_one_line(line: str) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", '"$0" "$@" <&-', *PROGRAM, *line.split()],
        capture_output=True,
        env=ENVIRONMENT,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: standard input: cannot be read: it is closed\n"


def test_a_server_that_says_nothing_is_awaited_no_longer_than_any_reply() -> None:
    # given a server that is connected and says nothing
    with socket.create_server((HOST, 0)) as server:
        url = f"nats://{HOST}:{server.getsockname()[1]}"

        # when a reply may take half a second
        shortest_s = math.inf
        for _ in range(ROUNDS):
            begin = time.monotonic()
            assert run(["get", "np", "--url", url, "--request-timeout", "500ms"]) == 4
            shortest_s = min(shortest_s, time.monotonic() - begin)
            if shortest_s < 3:
                break

    # then the command ends long before the five seconds that a connection may take at most
    assert shortest_s < 3
