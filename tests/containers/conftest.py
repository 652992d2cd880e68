"""The checkout, the images and the stack that the tests of containers share."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from containers.engine import ROOT, compose, obstacle
from containers.images import PREFIX, images, under_their_names
from containers.stack import BRING_UP, IMAGE, IMAGE_OF_BUS, Stack, docker
from containers.stand_ins import Missing

_USED: dict[str, str] = {}
LOCK = Path(tempfile.gettempdir()) / f"nodepool-test-containers-{os.getuid()}"
PROJECT = f"nodepool-test-{os.getuid()}"


@pytest.fixture(scope="session")
def engine() -> None:
    """A container engine; without one the test is skipped, and the summary of the run names it."""
    if reason := obstacle():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def turn(engine: None) -> Iterator[None]:
    """One run at a time: what a killed run has left is removed, and what runs has to stay."""
    with LOCK.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
        # Images of ours that have lost their name to newer ones.
        select = "label=org.opencontainers.image.title=nodepool"
        docker("image", "prune", "--force", "--filter", select, check=False)


@pytest.fixture(scope="session")
def base_images(turn: None) -> Iterator[None]:
    """What the files name to start from, or what stands for it, under the names that they use."""
    try:
        _USED.update(images())
    except Missing as error:
        pytest.skip(f"an image is missing: {error}")
    with under_their_names(_USED):
        yield


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a new user has after `git clone`: the files that git knows or would take, as they are.

    It has none of a developer's other files, on which a build could depend unnoticed. All may read
    them, whatever this shell leaves to others.
    """
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"git cannot list the files of {ROOT}: {error}")
    folder = tmp_path_factory.mktemp("clone") / "nodepool"
    for name in filter(None, listed.stdout.split("\0")):
        if ROOT.joinpath(name).is_file():
            folder.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    for path in (folder, *folder.rglob("*")):
        is_program = path.is_dir() or os.access(path, os.X_OK)
        path.chmod(0o755 if is_program else 0o644)
    return folder


@pytest.fixture(scope="session")
def stack(base_images: None, checkout: Path) -> Iterator[Stack]:
    """The compose file at work as a new user starts it, for tests that leave it so."""
    stack = Stack(PROJECT, checkout)
    stack.down()
    docker("image", "rm", "--force", IMAGE, IMAGE_OF_BUS, check=False)
    try:
        stack.up(*BRING_UP.removeprefix("docker compose up ").split())
        yield stack
    finally:
        stack.down()


@pytest.fixture(scope="session")
def built_images(stack: Stack) -> None:
    """The images of this project: those that the compose file has built."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says with which Compose the tests ran, and on what in place of images that were not there."""
    if not _USED:
        return
    terminalreporter.write_line(f"containers: ran with {' '.join(compose())}")
    for image in _USED.values():
        if image.startswith(PREFIX):
            terminalreporter.write_line(f"containers: ran on a stand-in, {image}", yellow=True)
