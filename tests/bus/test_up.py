"""`nodepool up`, several at once, and where it cannot write."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.ports import free_port

PATIENCE_S = 120


def up(folder: Path) -> "subprocess.Popen[str]":
    """A control plane on a port and in a folder of its own, which stops once everything runs."""
    environment = {
        **{name: os.environ[name] for name in ("PATH", "XDG_CONFIG_HOME")},
        "PYTHONPATH": os.pathsep.join(sys.path),
        "NODEPOOL_NATS_PORT": str(free_port()),
    }
    command = [sys.executable, "-m", "nodepool.cli", "up", "--once", "--data-dir", str(folder)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


@pytest.mark.timeout(2 * PATIENCE_S)
def test_two_control_planes_that_start_at_once_serve_their_metrics_on_different_ports(
    tmp_path: Path,
) -> None:
    # given two folders
    # when a control plane starts in each at the same time
    with up(tmp_path / "one") as one, up(tmp_path / "two") as two:
        printed = [process.communicate(timeout=PATIENCE_S)[0] for process in (one, two)]

    # then both come to work, and nothing in them ends
    assert (one.returncode, two.returncode) == (0, 0), printed
    assert not [text for text in printed if "ended with exit code" in text]
    metrics = [line for text in printed for line in text.splitlines() if "metrics of" in line]
    assert len(set(metrics)) == 4
    errors = [path.read_text() for path in sorted(tmp_path.glob("*/logs/*.err"))]
    assert set(errors) == {""}

    # and no service has waited for streams or was denied anything
    logs = "".join(path.read_text() for path in tmp_path.glob("*/logs/*.log"))
    assert "not provisioned" not in logs
    assert "bus error" not in logs


def test_a_log_folder_that_cannot_be_made_is_named_in_one_line(tmp_path: Path) -> None:
    # given a data directory with a file in the place of the folder of logs
    (tmp_path / "logs").write_text("in the way")

    # when a control plane is to run in it
    with up(tmp_path) as process:
        printed = process.communicate(timeout=PATIENCE_S)[0]

    # then one line says what is wrong and what to do
    assert process.returncode == 1
    assert printed == (
        f"error: cannot write the logs of the services: {tmp_path / 'logs'}: File exists: "
        "fix that, or choose another directory\n"
    )


def test_a_log_that_cannot_be_written_is_named_in_one_line(tmp_path: Path) -> None:
    # given a folder of logs with a folder in the place of one of them
    (tmp_path / "logs" / "allocator.err").mkdir(parents=True)

    # when a control plane is to run in it
    with up(tmp_path) as process:
        printed = process.communicate(timeout=PATIENCE_S)[0]

    # then one line says what is wrong and what to do
    assert process.returncode == 1
    assert printed == (
        f"error: cannot write the logs of the services: {tmp_path / 'logs' / 'allocator.err'}: "
        "Is a directory: fix that, or choose another directory\n"
    )
