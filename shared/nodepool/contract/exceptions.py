"""Exceptions that are never the failure of a message."""

from typing import Final

NO_FAILURE: Final = (MemoryError,)
"""Exceptions that say something of the process and nothing of the input that it had at hand.

Whatever catches any exception of an input lets these pass: they end the process, and another
process finds the input in the log. RecursionError is a failure of its input: the same nesting
raises it in every process, and each of them would end.
"""
