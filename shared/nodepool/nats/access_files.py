"""Files that hold certificates, keys and passwords; no message here quotes their content."""

from nodepool.nats.plain_files import open_file

BYTES_MAX = 1 << 18
"""The size limit of a file with a key, a password or a client's certificate."""
BUNDLE_BYTES_MAX = 1 << 22
"""The size limit of a file with certificates to trust.

The certificates of all public authorities take a quarter of a MiB.
"""


class AccessError(Exception):
    """A file or value that cannot be used to connect; the text names it and the fix in one clause.

    field: the field of `Access` that is at fault.
    """

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


def content_of(field: str, path: str, most: int = BYTES_MAX) -> bytes:
    """Return the content of a file of at most `most` bytes; raise AccessError if that fails."""
    try:
        with open_file(path) as file:
            content = file.read(most + 1)
    except OSError as error:
        raise AccessError(field, f"cannot read {path}: {error.strerror}") from None
    except ValueError:  # A path may hold no null byte.
        raise AccessError(field, "it is no path of a file") from None
    if len(content) > most:
        raise AccessError(field, f"{path} has more than {most >> 10} KiB; it is another file")
    return content


def one_line(field: str, path: str) -> str:
    """Return the only line of a file, stripped; raise AccessError if it is not a single line."""
    try:
        text = content_of(field, path).decode().strip()
    except UnicodeDecodeError:
        raise AccessError(field, f"{path} holds no text; it must hold one line of it") from None
    if not text or not text.isprintable():
        found = "is empty" if not text else "holds more than one line"
        raise AccessError(field, f"{path} {found}; it must hold one line")
    return text
