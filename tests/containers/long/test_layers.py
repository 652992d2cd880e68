"""Whether the image can be made again, and how much of it a change makes anew."""

from pathlib import Path

import pytest

from containers.building import built, changed_copy, layers
from containers.stack import IMAGE, docker

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("built_images")]
CODE_MAX = 8_000_000
"""How much a change of code adds, in bytes; measured: 4 MB."""


@pytest.mark.parametrize("buildkit", ["1", "0"], ids=["BuildKit", "the older builder"])
def test_the_same_sources_make_the_same_layers_whoever_may_read_them(
    checkout: Path, tmp_path: Path, buildkit: str
) -> None:
    # given sources that only their owner may read, as a umask of 077 leaves them
    folder = changed_copy(checkout, tmp_path)
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode & 0o700)

    # when the image is made of them from the beginning
    with built(folder, "--no-cache", DOCKER_BUILDKIT=buildkit) as again:
        # then it holds what the first one does
        assert layers(again) == layers(IMAGE)


def test_a_change_of_code_leaves_the_large_layer_as_it_was(checkout: Path, tmp_path: Path) -> None:
    # given the sources with a line more
    folder = changed_copy(checkout, tmp_path)
    with (folder / "services" / "quota" / "decide.py").open("a") as file:
        file.write("# Another line.\n")

    # when they are built
    with built(folder) as changed:
        # then Python and the packages of others are the layer that every machine has already
        assert layers(changed)[0] == layers(IMAGE)[0]
        assert layers(changed)[1:] != layers(IMAGE)[1:]
        sizes = docker("history", "--no-trunc", "--format", "{{.Size}}", "--human=false", changed)
        assert sum(sorted(map(int, sizes.split()))[:-1]) < CODE_MAX
