"""A line on standard error that says what a command waits for, while nothing else is printed.

The line is shown only on a terminal, for commands that take longer than `PATIENCE_S`. It is removed
before anything else is printed.
"""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

PATIENCE_S = 2.0
"""How long a command may be silent before the line appears, in seconds."""
INTERVAL_S = 0.5
"""How often the line is written again, in seconds."""
_ERASE = "\r\x1b[K"


class _Line:
    """The last line of the terminal; a process has only one."""

    def __init__(self) -> None:
        self._is_shown = False

    def show(self, text: str) -> None:
        """Write the line, in the place of an earlier one."""
        self._is_shown = True
        self._write(f"{_ERASE}{text}")

    def clear(self) -> None:
        """Remove the line, if it is shown."""
        if self._is_shown:
            self._is_shown = False
            self._write(_ERASE)

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()


_LINE = _Line()
clear = _LINE.clear


@asynccontextmanager
async def shown_while(text: Callable[[float], str]) -> AsyncIterator[None]:
    """Show a line while the context runs; `text` makes it from how many seconds have passed."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    import asyncio  # Every command loads this module, and most of them need no asyncio for it.

    task = asyncio.create_task(_keep(text))
    try:
        yield
    finally:
        task.cancel()
        clear()


async def _keep(text: Callable[[float], str]) -> None:
    import asyncio

    clock = asyncio.get_running_loop().time
    began = clock()
    await asyncio.sleep(PATIENCE_S)
    while True:
        _LINE.show(text(clock() - began))
        await asyncio.sleep(INTERVAL_S)
