"""`make run-metal` shows what the page of real machines says that it shows."""

import os
import subprocess
import sys

import pytest

WITHIN_S = 600
POWERED = [["apply", "-f"], ["wait", "np/training"], ["machine", "list"]]


@pytest.mark.timeout(WITHIN_S)
def test_three_machines_are_powered_on_and_a_preempted_one_is_wiped_and_free(
    request: pytest.FixtureRequest,
) -> None:
    # In the short form no Node is preempted, which takes two minutes.
    is_short = request.config.getoption("--short")
    done = subprocess.run(
        [sys.executable, "-m", "redfish.run", "--short" if is_short else "--once"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    _, *shown = done.stdout.split("\n$ nodepool ")
    words = [each.split("\n")[0].split()[:2] for each in shown]
    preempted = [["preempt", shown[3].split()[1]], ["machine", "describe"]]
    assert words == [*POWERED, *(() if is_short else preempted), ["machine", "list"]]
    assert "has read its configuration: org demo, cluster lab, and its join token" in shown[2]
    assert shown[2].count(" On ") == shown[2].count("Assigned") == 3
    assert is_short or "Last Wiped" in shown[4]
    assert "ControllerSilent" in shown[-1]
