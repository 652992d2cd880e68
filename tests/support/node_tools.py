"""Programs of Node.js that tests use, installed from their lock file when first needed."""

import fcntl
import re
import shutil
import subprocess
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[1] / "tools"
UNREACHABLE = re.compile(r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH")


def installed(name: str) -> Path:
    """The folder `tests/tools/<name>`, with what its lock file lists in `node_modules`.

    The test is skipped where there is no npm, or where the npm registry cannot be reached.
    """
    npm, folder = shutil.which("npm"), TOOLS / name
    if npm is None:
        pytest.skip("there is no npm on PATH")
    lock = (folder / "package-lock.json").read_bytes()
    stamp = folder / "node_modules" / ".lock"
    with (folder / ".install-lock").open("w") as turns:
        fcntl.flock(turns, fcntl.LOCK_EX)
        if not stamp.is_file() or stamp.read_bytes() != lock:
            command = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode and UNREACHABLE.search(done.stderr):
                pytest.skip("the npm registry cannot be reached")
            assert done.returncode == 0, done.stderr
            stamp.write_bytes(lock)
    return folder
