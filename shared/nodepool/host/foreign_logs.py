"""Messages of libraries and of the interpreter, as lines of a service's log.

Examples are Python's own warnings, tasks whose exception was never retrieved, and an exporter that
cannot reach its receiver. Without this module, each would print several lines of text to standard
error, which a log collector does not recognize as one message.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nodepool.host.logs import Logger


class _Handler(logging.Handler):
    """Passes each record of the standard library's logging to a service's log."""

    def __init__(self, log: Callable[[], Logger]) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record as one line; drop a record that cannot be written."""
        try:
            text = " ".join(record.getMessage().split())
            # The record is about one request of many; another line reports if all requests fail.
            if record.name.startswith("opentelemetry.") and record.levelno < logging.ERROR:
                return
            log = self._log()
            say = log.warning if record.levelno < logging.ERROR else log.error
            say("library", logger=record.name, cause=text, exc_info=record.exc_info or None)
        except Exception:  # In place of `logging.Handler.handleError`, which would print text.
            return


@contextmanager
def foreign_logs(log: Callable[[], Logger]) -> Iterator[None]:
    """Write the log records and warnings of libraries to a log, until the context ends.

    log: returns the log to write to, whenever there is something to write.
    """
    handler, root = _Handler(log), logging.getLogger()
    root.addHandler(handler)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)
        handler.close()
