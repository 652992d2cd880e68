"""Every alert fires where it should, as promtool computes it from series by the minute."""

import shutil
import subprocess
from pathlib import Path

import pytest

TRIED = Path(__file__).parents[1] / "alerts"


@pytest.mark.parametrize("file", sorted(TRIED.glob("*.yml")), ids=lambda path: path.stem)
def test_an_alert_fires_where_it_should_and_is_quiet_where_it_should(file: Path) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("there is no promtool on PATH")

    done = subprocess.run(
        [program, "test", "rules", file.name],
        cwd=TRIED,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
