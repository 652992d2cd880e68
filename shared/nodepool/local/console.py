"""Printing what `nodepool up` does."""

import sys


def report(text: str) -> None:
    """Print a text and a newline, and flush, so that a pipe gets the text at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
