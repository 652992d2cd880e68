"""Notes what a page reads while it is made, so that it is made again only if that has changed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from typing import Concatenate, ParamSpec, TypeVar

_Owner = TypeVar("_Owner")
_Asked = ParamSpec("_Asked")
_Answer = TypeVar("_Answer")


class Reads:
    """The questions that a page has asked while it was made, with their answers."""

    def __init__(self) -> None:
        self._answers: list[tuple[Callable[[], object], object]] = []
        self._is_open = False

    @contextmanager
    def open(self) -> Iterator[None]:
        """Note what is read meanwhile, also by tasks that begin meanwhile."""
        token, self._is_open = _READS.set(self), True
        try:
            yield
        finally:
            # A task that goes on would otherwise add its answers for as long as it runs.
            self._is_open = False
            _READS.reset(token)

    def hold(self) -> bool:
        """Return whether all questions have the same answers now."""
        return all(ask() == answer for ask, answer in self._answers)

    def note(self, ask: Callable[[], _Answer]) -> _Answer:
        """Return the answer to a question; what the question itself reads is not noted."""
        if not self._is_open:
            return ask()
        token = _READS.set(None)
        try:
            answer = ask()
        finally:
            _READS.reset(token)
        # If a question has two answers while the page is made, they do not both hold, so the page
        # is made again.
        self._answers.append((ask, answer))
        return answer


_READS: ContextVar[Reads | None] = ContextVar("reads", default=None)
"""Where the page that is made now notes what it reads; None if nothing is noted."""


def noted(
    read: Callable[Concatenate[_Owner, _Asked], _Answer],
) -> Callable[Concatenate[_Owner, _Asked], _Answer]:
    """Have pages that read from this method be made again once it returns another value.

    Nobody may change a returned value: the next value is compared with it.
    """

    @wraps(read)
    def answer(owner: _Owner, /, *args: _Asked.args, **fields: _Asked.kwargs) -> _Answer:
        reads = _READS.get()
        if reads is None:
            return read(owner, *args, **fields)
        return reads.note(partial(read, owner, *args, **fields))

    return answer
