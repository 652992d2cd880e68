"""The example of a training run: it counts every step once, however often it is interrupted."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

TRAIN = Path(__file__).parents[2] / "deploy" / "examples" / "train.py"


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    """A training run of 12 short steps with its checkpoint in a folder."""
    steps = ("--steps", "12", "--step-seconds", "0.02", "--checkpoint", str(folder / "train.json"))
    environment = {**os.environ, "NODEPOOL_NODE": "g1"}
    return subprocess.Popen(
        [sys.executable, str(TRAIN), *steps, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )


def ended(run: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """The exit code of a run and the lines that were not read yet."""
    # `communicate` skips the text that is buffered after the last line that was read.
    assert run.stdout is not None
    with run.stdout as output:
        lines = output.read().splitlines()
    return run.wait(30), lines


def step_in(folder: Path) -> object:
    """How many steps the checkpoint has."""
    return json.loads((folder / "train.json").read_text())["step"]


def test_a_run_does_all_steps_and_says_so(tmp_path: Path) -> None:
    code, lines = ended(start(tmp_path))

    steps = [f"step {number}" for number in range(1, 13)]
    assert (code, lines) == (0, ["on g1: 0 of 12 steps are done", *steps, "done"])
    assert step_in(tmp_path) == 12


def test_a_run_that_is_asked_to_end_saves_its_steps_and_the_next_goes_on(tmp_path: Path) -> None:
    first = start(tmp_path)
    assert first.stdout is not None
    head = [first.stdout.readline().strip() for _ in range(4)]

    first.send_signal(signal.SIGTERM)
    code, tail = ended(first)
    resumed = ended(start(tmp_path))

    done = [line for line in (*head, *tail, *resumed[1]) if line.startswith("step ")]
    assert code == 128 + 15
    assert tail[-1].startswith("asked to end after ")
    assert done == [f"step {number}" for number in range(1, 13)]
    assert resumed[0] == 0


def test_a_run_that_is_killed_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    first = start(tmp_path, "--every", "3")
    assert first.stdout is not None
    for _ in range(6):
        first.stdout.readline()

    first.kill()
    ended(first)
    saved = step_in(tmp_path)
    code, lines = ended(start(tmp_path))

    assert saved in (3, 6, 9)
    assert (code, lines[0]) == (0, f"on g1: {saved} of 12 steps are done")


def test_a_run_without_anything_left_to_do_ends(tmp_path: Path) -> None:
    ended(start(tmp_path))

    assert ended(start(tmp_path)) == (0, ["on g1: 12 of 12 steps are done", "done"])


def test_a_file_that_is_no_checkpoint_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "train.json"
    file.write_text("notes")

    code, lines = ended(start(tmp_path))

    why = f"{file} is no checkpoint: remove it, or name another with --checkpoint"
    assert (code, lines, file.read_text()) == (1, [why], "notes")
