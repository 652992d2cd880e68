"""The `nodepool` command: the control plane with the verbs and the output of kubectl."""

import errno
import gc
import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType
    from typing import TextIO

INTERRUPTED = 130
"""The exit code after Ctrl-C, by the convention of shells: 128 plus the number of the signal."""
BROKEN_PIPE = 141
"""The exit code if the reader of a pipe is gone, by the same convention."""
COLLECTED_FROM = 10_000
"""After how many new objects the garbage collector runs, since a watch may run for days."""
_FAILED = 1
_OUTPUT_ERRORS = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF))


def main() -> None:
    """Run the command and exit.

    The exit codes: 0 done, 1 refused or not found, 2 usage, 3 timeout, 4 no server, 130 Ctrl-C,
    141 if the pipe was closed.
    """
    # Nearly all that a command makes are the modules that it imports, which are no garbage.
    gc.set_threshold(COLLECTED_FROM)
    # Ctrl-C ends the program at once, at any point: it has no state to save besides the log.
    signal.signal(signal.SIGINT, _exit_on_interrupt)
    try:
        # Imported here, so that Ctrl-C is handled during the imports too.
        from nodepool.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = INTERRUPTED
    except OSError as error:
        code = _cannot_write(error)
    code = _flush_output(code)
    # The interpreter would search everything for garbage again, a tenth of the time of a command.
    gc.freeze()
    sys.exit(code)


def _exit_on_interrupt(_: int, __: "FrameType | None") -> None:
    os._exit(INTERRUPTED)


def _flush_output(code: int) -> int:
    """Return the exit code after all output is written; a pipe closed early is no error."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _discard(sys.stdout)
        return code or BROKEN_PIPE
    except OSError as error:
        return _cannot_write(error)
    return code


def _cannot_write(error: OSError) -> int:
    """Report that the output cannot be written and return the exit code.

    Raises any other error. An error that names a file is not about the output.
    """
    if error.errno not in _OUTPUT_ERRORS or error.filename is not None:
        raise error
    _discard(sys.stdout)
    try:
        sys.stderr.write(f"error: the output cannot be written: {error.strerror}\n")
    except OSError:
        _discard(sys.stderr)
    return _FAILED


def _discard(stream: "TextIO | None") -> None:
    """Discard the rest of an output.

    The interpreter flushes once more when it exits, and would report the same error.
    """
    if stream is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
