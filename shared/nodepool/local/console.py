"""Printing what `nodepool up` does."""

import sys


def report(text: str) -> None:
    """Prints a text and a newline, at once even into a pipe."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
