"""Compiles a part of the image and gives all of it one time: `python -m image.finish FOLDER`.

Nothing in it depends on when or where it was built, so that the same sources make the same layer.
"""

import compileall
import os
import py_compile
import sys
from pathlib import Path

_CHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH


def finish(folder: Path, inside: str) -> None:
    """Compiles the modules of a folder, which is `inside` in the image, and dates all its files."""
    # The file system is read-only later: what is not compiled now is compiled at every start.
    compileall.compile_dir(
        str(folder), quiet=2, stripdir=str(folder), prependdir=inside, invalidation_mode=_CHECKED
    )
    moment = int(os.environ["SOURCE_DATE_EPOCH"])
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (moment, moment), follow_symlinks=False)


if __name__ == "__main__":
    finish(Path(sys.argv[1]), sys.argv[2])
