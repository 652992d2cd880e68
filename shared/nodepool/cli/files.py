"""Where manifests come from: files, folders, standard input."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from nodepool.cli.faults import Refusal

if TYPE_CHECKING:
    from nodepool.manifests import Manifest

SUFFIXES = frozenset((".yaml", ".yml", ".json"))
STDIN = "-"


def gathered(names: Iterable[str]) -> "list[Manifest]":
    """Every manifest in the files named, in folders (not below them) and in standard input (`-`).

    Raises `ManifestError`, or `Refusal` for a file that cannot be read; then none is given.
    """
    from nodepool.manifests import manifests

    return [
        manifest for source, content in _contents(names) for manifest in manifests(content, source)
    ]


def _contents(names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    from nodepool.manifests import SIZE_MAX

    for name in names:
        if name == STDIN:
            # One byte more than allowed tells a large input from one that just fits.
            yield "standard input", sys.stdin.buffer.read(SIZE_MAX + 1)
            continue
        for path in _files(Path(name)):
            try:
                with path.open("rb") as file:
                    yield str(path), file.read(SIZE_MAX + 1)
            except OSError as error:
                raise Refusal(f"{path}: cannot be read: {error.strerror}") from None


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
    if not found:
        raise Refusal(f"{path}: holds no .yaml, .yml or .json file; name one that does")
    return found
