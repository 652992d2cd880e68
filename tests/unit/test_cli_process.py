"""The `nodepool` command as a process: its output, and Ctrl-C."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from nodepool.local.ports import HOST

ENVIRONMENT = {
    **{name: text for name, text in os.environ.items() if not name.startswith("NODEPOOL_")},
    "PYTHONPATH": os.pathsep.join(sys.path),
}
PROGRAM = [sys.executable, "-m", "nodepool.cli"]
FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("arguments", [["--help"], ["version"], ["api-resources"]])
def test_output_that_cannot_be_written_is_one_error(arguments: list[str]) -> None:
    with FULL.open("w") as output:
        done = subprocess.run(
            [*PROGRAM, *arguments],
            stdout=output,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
            text=True,
            check=False,
        )

    assert done.returncode == 1
    assert done.stderr == "error: the output cannot be written: No space left on device\n"


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
def test_an_error_that_cannot_be_written_is_an_exit_code() -> None:
    with FULL.open("w") as errors:
        done = subprocess.run(
            [*PROGRAM, "get", "pods"], stderr=errors, env=ENVIRONMENT, check=False
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
