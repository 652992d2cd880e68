"""Files that a person names: the path may lead to a pipe or a device.

No message here quotes the content of a file, which may be a key or a password.
"""

import errno
import os
import re
import stat
from io import BufferedReader
from pathlib import Path

from nodepool.nats.wire.errors import AccessError

_INHERITED = re.compile(r"/dev/(?:fd/(\d{1,6})|stdin)|/proc/self/fd/(\d{1,6})", re.ASCII)
_SECRET = re.compile(r"S[A-Z][A-Z2-7]{40,}|eyJ[\w-]+\.[\w.-]+|(?s:.*-----\s*BEGIN .*)", re.ASCII)
"""Matches a seed, a JWT and PEM: what somebody may write where the path of its file belongs."""
_OF_A_WORD = ("password_file", "token_file")
_KINDS = (
    (stat.S_ISDIR, errno.EISDIR, "Is a directory"),
    (stat.S_ISFIFO, errno.EINVAL, "Is a named pipe and no file"),
)
BYTES_MAX = 1 << 18
"""The size limit of a file with a key, a password or a client's certificate."""
BUNDLE_BYTES_MAX = 1 << 22
"""The size limit of a file with certificates to trust.

The certificates of all public authorities take a quarter of a MiB.
"""


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


def content_of(field: str, path: str, most: int = BYTES_MAX) -> bytes:
    """Return the content of a file of at most `most` bytes; raise AccessError if that fails."""
    if _SECRET.fullmatch(path):
        text = "it is a secret and no path; write it to a file of mode 0600, and name that file"
        raise AccessError(field, text)
    try:
        with open_file(path) as file:
            content = file.read(most + 1)
    except OSError as error:
        # Somebody may have set a password or a token where the path of its file belongs.
        is_secret = field in _OF_A_WORD and error.errno in (errno.ENOENT, errno.ENAMETOOLONG)
        shown = "the file that it names" if is_secret else path
        raise AccessError(field, f"cannot read {shown}: {error.strerror}") from None
    except ValueError:  # A path may hold no null byte.
        raise AccessError(field, "it is no path of a file") from None
    if len(content) > most:
        raise AccessError(field, f"{path} has more than {most >> 10} KiB; it is another file")
    return content


def one_line(field: str, path: str) -> str:
    """Return the only line of a file, stripped; raise AccessError if it is not a single line.

    Other lines of the file may be comments, which begin with `#`.
    """
    try:
        text = content_of(field, path).decode().strip()
    except UnicodeDecodeError:
        raise AccessError(field, f"{path} holds no text; it must hold one line of it") from None
    if len(lines := text.splitlines()) > 1:
        text = "\n".join(line.strip() for line in lines if not line.startswith("#"))
    if not text or not text.isprintable():
        found = "is empty" if not text else "holds more than one line"
        raise AccessError(field, f"{path} {found}; it must hold one line")
    return text
