"""The container engine and the Compose of this machine, where there are any."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from containers.stand_ins import CACHE

ROOT = Path(__file__).parents[2]
COMPOSE_VERSION = "2.40.3"
COMPOSE_MIN = (2, 20)
"""The oldest that deploy/README.md names: it knows dependencies that are not required."""
BUILT = CACHE / f"docker-compose-{COMPOSE_VERSION}"
"""Compose made from its Go module: `python -m containers.compose`."""
ANSWER_S = 30


def runs(*command: str) -> bool:
    """Whether a command is there, and ends with 0."""
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=ANSWER_S)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


@cache
def compose() -> Sequence[str]:
    """The command of Compose; empty where there is none that is new enough."""
    for command in (["docker", "compose"], [str(BUILT)], ["docker-compose"]):
        if _version(*command, "version", "--short") >= COMPOSE_MIN:
            return command
    return []


def _version(*command: str) -> tuple[int, ...]:
    """The version that a command prints, such as `v2.40.3`; empty where it does not run."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=ANSWER_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = re.match(r"v?(\d+)\.(\d+)", done.stdout) if done.returncode == 0 else None
    return tuple(map(int, found.groups())) if found else ()


@cache
def obstacle() -> str:
    """Why no containers can be run here, as one line; empty where they can."""
    if shutil.which("docker") is None:
        return "there is no docker command"
    if not runs("docker", "info"):
        return "no container engine answers"
    if not compose():
        least = ".".join(map(str, COMPOSE_MIN))
        return f"there is no Compose {least} or newer: `python -m containers.compose` makes it"
    return ""


@cache
def environment() -> Mapping[str, str]:
    """What is kept of this shell for the engine and Compose: nothing that the files read."""
    kept = ("PATH", "HOME", "DOCKER_HOST", "DOCKER_CONTEXT", "TMPDIR")
    return {name: os.environ[name] for name in kept if name in os.environ}
