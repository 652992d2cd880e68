"""Makes Compose from its Go module where a machine has none: `python -m containers.compose`.

It takes six minutes of a processor once; the program stays in the cache. Ends with 0 in any case,
and says what there is.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from containers.engine import BUILT, COMPOSE_VERSION, compose

MODULE = f"github.com/docker/compose/v2@v{COMPOSE_VERSION}"
LIMIT_S = 1_800


def main() -> str:
    """Makes it unless there is one; what there is then, as one line."""
    if found := compose():
        return f"{' '.join(found)} is there"
    if shutil.which("go") is None:
        return "there is none that is new enough, and no go to make it with"
    try:
        _make()
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired, OSError) as error:
        return f"could not make {MODULE}: {error}"
    return f"made {BUILT}"


def _make() -> None:
    download = ["go", "mod", "download", "-json", MODULE]
    downloaded = subprocess.run(download, check=True, capture_output=True, timeout=LIMIT_S)
    with tempfile.TemporaryDirectory() as folder:
        # A copy, since `go install` refuses a module whose go.mod excludes versions.
        source = Path(folder) / "compose"
        shutil.copytree(json.loads(downloaded.stdout)["Dir"], source)
        for path in (source, *source.rglob("*")):
            path.chmod(path.stat().st_mode | 0o200)
        BUILT.parent.mkdir(parents=True, exist_ok=True)
        unfinished = BUILT.with_suffix(".part")
        number = f"-X github.com/docker/compose/v2/internal.Version=v{COMPOSE_VERSION}"
        build = ["go", "build", "-trimpath", "-ldflags", f"-s -w {number}", "-o", str(unfinished)]
        subprocess.run(
            [*build, "./cmd"],
            cwd=source,
            check=True,
            capture_output=True,
            timeout=LIMIT_S,
            preexec_fn=lambda: os.nice(19),
        )
        unfinished.replace(BUILT)


if __name__ == "__main__":
    sys.stdout.write(f"compose: {main()}\n")
