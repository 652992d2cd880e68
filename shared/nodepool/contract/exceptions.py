"""Which exceptions are failures, how a failure reads, and how a decision passes over one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from nodepool.contract.keys import PoolKey

NO_FAILURE: Final = (MemoryError,)
"""Exceptions that say something of the process and nothing of the input that it had at hand.

Whatever catches any exception of an input lets these pass: they end the process, and another
process finds the input in the log. RecursionError is a failure of its input: the same nesting
raises it in every process, and each of them would end.
"""


def describe(error: Exception) -> str:
    """Return an exception as one sentence: its kind and its text, at most 500 characters.

    Characters that UTF-8 cannot encode become question marks, so that the sentence can be stored.
    """
    kind = type(error).__name__
    try:
        text = f"{kind}: {error}".removesuffix(": ")
    except Exception:  # An exception whose own text cannot be made.
        text = kind
    return text[:500].encode(errors="replace").decode()


@contextmanager
def passing_over(key: PoolKey, failed: dict[PoolKey, str]) -> Iterator[None]:
    """Note in `failed` why a part of a decision failed that is about one of several NodePools.

    The caller leaves this NodePool out and goes on, so that a NodePool never stops the others.
    """
    try:
        yield
    except NO_FAILURE:
        raise
    except Exception as error:
        failed[key] = describe(error)
