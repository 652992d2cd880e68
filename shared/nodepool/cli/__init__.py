"""The `nodepool` command: kubectl's verbs and outputs for the control plane."""

import os
import sys

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""


def main() -> None:
    """Runs the command and exits: 0 done, 1 refused or not found, 2 usage, 3 time out, 4 no bus."""
    try:
        # Imported here, so that Ctrl-C during the imports is as quiet as later.
        from nodepool.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(_flushed(code))


def _flushed(code: int) -> int:
    """The exit code, once all output is out; whoever closed the pipe has seen enough."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes once more when it ends, and would complain then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
