"""What libraries and the interpreter have to say of a service, as lines of its log.

Python's own warnings, tasks whose exception nobody asked for, an exporter that finds no receiver:
each would else be some lines of text on standard error, which no reader of logs takes for one.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from nodepool.host.logs import Logger


class _Handler(logging.Handler):
    """Gives each record of the standard library's logging to a service's log."""

    def __init__(self, log: Logger) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record as one line; drop a record that cannot be written."""
        try:
            text = " ".join(record.getMessage().split())
            # It is about one request out of many, and another line says if all are in vain.
            if record.name.startswith("opentelemetry.") and record.levelno < logging.ERROR:
                return
            say = self._log.warning if record.levelno < logging.ERROR else self._log.error
            say("library", logger=record.name, cause=text, exc_info=record.exc_info or None)
        except Exception:  # As `logging.Handler.handleError`, which would print lines of text.
            return


@contextmanager
def foreign_logs(log: Logger) -> Iterator[None]:
    """Write the log records and warnings of libraries to `log`, until the context ends."""
    handler, root = _Handler(log), logging.getLogger()
    root.addHandler(handler)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)
        handler.close()
