"""The `nodepool` command: the control plane with the verbs and the output of kubectl."""

import os
import sys
from contextlib import suppress

INTERRUPTED = 130
"""The exit code after Ctrl-C, by the convention of shells: 128 and the number of the signal."""
BROKEN_PIPE = 141
"""The exit code where the reader of a pipe has gone, by the same convention."""


def main() -> None:
    """Runs the command and exits.

    The exit codes: 0 done, 1 refused or not found, 2 usage, 3 timeout, 4 no server, 130 Ctrl-C,
    141 for a pipe that was closed.
    """
    try:
        # Imported here, so that Ctrl-C during the imports is handled as later.
        from nodepool.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = INTERRUPTED
    except OSError as error:
        # Only output has no file name here: files and the server have errors of their own.
        if error.filename is not None:
            raise
        _report(error)
        code = 1
    sys.exit(_flushed(code))


def _flushed(code: int) -> int:
    """The exit code, after all output is written; a pipe that was closed early is no error."""
    if sys.stdout is None:
        return code
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        return code or BROKEN_PIPE
    except OSError as error:
        _drop_output()
        if not code:
            _report(error)
        return code or 1
    return code


def _report(error: OSError) -> None:
    with suppress(OSError):
        sys.stderr.write(f"error: the output cannot be written: {error.strerror}\n")


def _drop_output() -> None:
    """Drops what is still to be written: the interpreter would report the same error again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
