"""The same log makes the same state, in another process and however that process hashes text."""

import os
import subprocess
import sys
from pathlib import Path

from support import replay

ROOT = Path(__file__).parents[2]


def told(hash_seed: str) -> bytes:
    """What a process with this hash seed makes of the story, as bytes."""
    paths = os.pathsep.join(str(ROOT / folder) for folder in ("shared", "services", "tests"))
    return subprocess.run(
        [sys.executable, "-m", "support.replay"],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": paths},
        check=True,
        capture_output=True,
    ).stdout


def test_another_hash_seed_changes_neither_the_log_nor_a_state() -> None:
    here = b"".join(replay.lines())

    elsewhere = [told(seed) for seed in ("1", "2")]

    assert elsewhere == [here, here]
