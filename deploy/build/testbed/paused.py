"""A process that hangs for a while."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pause_process(pid: int) -> Iterator[None]:
    """Pause a process, whose connections stay open: SIGSTOP now, and SIGCONT at the end."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
