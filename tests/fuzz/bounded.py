"""What every reader of foreign bytes keeps to: it ends soon, whatever it reads."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

CPU_MAX_S = 3.0
"""What reading one message may take of the processor, in seconds; most take a thousandth."""


@contextmanager
def bounded() -> Iterator[None]:
    """Fails where what happens in here takes longer than `CPU_MAX_S` of the processor."""
    began = time.process_time()
    yield
    used = time.process_time() - began
    assert used < CPU_MAX_S, f"it took {used:.1f} s of the processor"
