"""A smaller bound on what one step of the engine stores: a few Nodes are then too many for it."""

from collections.abc import Iterator
from contextlib import contextmanager

from nodepool.engine import bounds, step


@contextmanager
def bounded(outputs_max: int) -> Iterator[None]:
    """While it lasts, an input leads to at most so many outputs; it has to hold every decision."""
    before = bounds.OUTPUTS_MAX
    _set(outputs_max)
    try:
        yield
    finally:
        _set(before)


def _set(outputs_max: int) -> None:
    for module in (bounds, step):
        setattr(module, "OUTPUTS_MAX", outputs_max)  # noqa: B010  # It is declared as final.
