"""The same inputs make the same log and the same states in every process."""

import os
import subprocess
import sys
from pathlib import Path

from support import replay

ROOT = Path(__file__).parents[2]


def replay_in_process(hash_seed: str) -> bytes:
    """The log and the states of the scenario in a process with this PYTHONHASHSEED."""
    paths = os.pathsep.join(
        str(ROOT / folder) for folder in ("shared", "services", "tests", "deploy/build")
    )
    return subprocess.run(
        [sys.executable, "-m", "support.replay"],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": paths},
        check=True,
        capture_output=True,
    ).stdout


def test_another_hash_seed_changes_neither_the_log_nor_a_state() -> None:
    here = b"".join(replay.lines())

    elsewhere = [replay_in_process(seed) for seed in ("1", "2")]

    assert elsewhere == [here, here]
