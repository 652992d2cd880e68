"""The `nodepool` command: the control plane with the verbs and the output of kubectl."""

import os
import sys

INTERRUPTED = 130
"""The exit code after Ctrl-C, by the convention of shells: 128 and the number of the signal."""


def main() -> None:
    """Runs the command and exits.

    The exit codes: 0 done, 1 refused or not found, 2 usage, 3 timeout, 4 no server, 130 Ctrl-C.
    """
    try:
        # Imported here, so that Ctrl-C during the imports is handled as later.
        from nodepool.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(_flushed(code))


def _flushed(code: int) -> int:
    """The exit code, after all output is written; a pipe that was closed early is no error."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes once more when it exits, and would report the same error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
