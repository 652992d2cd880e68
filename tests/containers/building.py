"""Building the image of the services once more, for a test."""

import json
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from containers.stack import IMAGE, Stack, docker


@contextmanager
def built(folder: Path, *args: str, **variables: str) -> Iterator[str]:
    """The image that Compose builds from a folder, under a name of its own.

    args: options of `build`; variables: those of the compose file, or of Compose.
    """
    name = f"{IMAGE}-{uuid.uuid4().hex[:8]}"
    builder = Stack(name, folder)
    builder.variables |= {"IMAGE": name, **variables}
    try:
        builder.run("build", *args, "demo")
        yield name
    finally:
        docker("image", "rm", "--force", name, check=False)


def changed_copy(folder: Path, place: Path) -> Path:
    """A copy of a checkout, to be changed."""
    return shutil.copytree(folder, place / "changed")


def layers(image: str) -> list[str]:
    """The digests of an image's layers."""
    found: list[str] = json.loads(
        docker("image", "inspect", "--format", "{{json .RootFS.Layers}}", image)
    )
    return found
