"""Opening files that a person names; the path may lead to a pipe or a device."""

import errno
import os
import re
import stat
from io import BufferedReader
from pathlib import Path

_INHERITED = re.compile(r"/dev/(?:fd/(\d{1,6})|stdin)|/proc/self/fd/(\d{1,6})", re.ASCII)
_KINDS = (
    (stat.S_ISDIR, errno.EISDIR, "Is a directory"),
    (stat.S_ISFIFO, errno.EINVAL, "Is a named pipe and no file"),
)


def open_file(path: str | Path) -> BufferedReader:
    """Open a regular file to read it; raise `OSError` for anything else, and wait for nothing.

    A pipe without a writer would make the program wait, and a device may never end.
    """
    return open(path, "rb", opener=_open_regular)


def read_given(path: str | Path, most: int) -> bytes:
    """Return the content of a file, up to `most` + 1 bytes; raise `OSError` as `open_file` does.

    The descriptors that a shell has opened, as for `<(command)`, are read as well.
    """
    inherited = _INHERITED.fullmatch(str(path))
    if inherited is None:
        with open_file(path) as file:
            return file.read(most + 1)
    # A duplicate of the descriptor, because opening the path again could block.
    with os.fdopen(os.dup(int(inherited[1] or inherited[2] or 0)), "rb") as file:
        return file.read(most + 1)


def _open_regular(path: str, flags: int) -> int:
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        if error.errno == errno.ENXIO:  # A socket cannot be opened at all.
            raise OSError(errno.EINVAL, "Is a socket or a device and no file", path) from None
        raise
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    for is_kind, number, text in _KINDS:
        if is_kind(mode):
            raise OSError(number, text, path)
    raise OSError(errno.EINVAL, "Is a device and no file", path)
