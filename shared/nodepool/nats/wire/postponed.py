"""Lets a library import modules that it may never use, and loads each when it is used."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType


class Postponed(ModuleType):
    """A module that is loaded when an attribute is read that it does not have yet.

    Raises AttributeError while it is postponed, so that the import of a submodule fails.
    """

    def __getattr__(self, name: str) -> object:
        if sys.modules.get(self.__name__) is self:
            raise AttributeError(f"{self.__name__}.{name} is read while it is postponed")
        return getattr(import_module(self.__name__), name)


@contextmanager
def postpone(*names: str) -> Iterator[None]:
    """Give a `Postponed` module to each import of these names in the context.

    A module that is already loaded stays. Imports after the context load the module.
    """
    postponed = {name: Postponed(name) for name in names if name not in sys.modules}
    sys.modules.update(postponed)
    try:
        yield
    finally:
        for name in postponed:
            del sys.modules[name]
