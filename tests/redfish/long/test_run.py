"""`make run-metal` shows what the page of real machines promises."""

import os
import subprocess
import sys

WITHIN_S = 600


def test_three_machines_are_powered_on_and_a_preempted_one_is_wiped_and_free() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "redfish.run", "--once"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    _, *shown = done.stdout.split("\n$ nodepool ")
    assert [each.split("\n")[0].split()[:2] for each in shown] == [
        ["apply", "-f"],
        ["wait", "np/training"],
        ["machine", "list"],
        ["preempt", shown[3].split()[1]],
        ["machine", "describe"],
        ["machine", "list"],
    ]
    first, last = shown[2], shown[5]
    assert first.count(" On ") == first.count("Assigned") == 3
    assert "Last Wiped" in shown[4] or "lastWiped" in shown[4]
    assert "ControllerSilent" in last
