"""Where the log lines of a service go: to standard output, or to files of limited size."""

import sys
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from typing import TextIO

from nodepool.host.settings import SettingsError

LOG_FILE_BYTES = 16 << 20
"""A log file that is larger than this is closed, and a new file is started."""
LOG_FILES_KEPT = 2
"""How many closed log files are kept."""
_WRITE_ERRORS = (OSError, ValueError)
"""A full disk, a pipe without a reader, a file that could not be opened again."""


class Output:
    """Where log lines go. A line that cannot be written is lost, but the service goes on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        """Write one line to the stream."""
        with suppress(*_WRITE_ERRORS):
            self._stream.write(f"{line}\n")

    def flush(self) -> None:
        """Write the lines taken so far."""
        with suppress(*_WRITE_ERRORS):
            self._stream.flush()

    def close(self) -> None:
        """Write the last lines; close a stream that takes no more lines."""
        try:
            self._stream.flush()
        except _WRITE_ERRORS:
            # Python would write them at exit, fail again, and end the process with status 120.
            with suppress(*_WRITE_ERRORS):
                self._stream.close()


class RotatingOutput(Output):
    """A log file and its full predecessors; raises OSError if the file cannot be opened."""

    def __init__(self, path: str) -> None:
        self._handler = RotatingFileHandler(
            path, maxBytes=LOG_FILE_BYTES, backupCount=LOG_FILES_KEPT, delay=False
        )
        super().__init__(self._require_stream())

    def _require_stream(self) -> TextIO:
        stream = self._handler.stream
        assert stream is not None, "a handler without a delay opens its file immediately"
        return stream

    def flush(self) -> None:
        """Write the lines taken so far, and begin a new file once this one is full."""
        super().flush()
        with suppress(*_WRITE_ERRORS):
            if self._stream.tell() > LOG_FILE_BYTES:
                self._handler.doRollover()
                self._stream = self._require_stream()

    def close(self) -> None:
        """Write the last lines, and close the file."""
        super().flush()
        with suppress(*_WRITE_ERRORS):
            self._handler.close()


class Immediate:
    """Where single lines go: each is flushed, because no later line may come to flush it."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def msg(self, line: str) -> None:
        """Write one line, and flush it."""
        self._output.msg(line)
        self._output.flush()

    log = debug = info = warning = error = critical = exception = msg


def open_output(path: str) -> Output:
    """Return where the lines go: to a file, or to standard output if there is no path.

    Raises SettingsError if the file cannot be opened.
    """
    if not path:
        return Output(sys.stdout)
    try:
        return RotatingOutput(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SettingsError(f"cannot write a log to {path}: {reason}") from error
