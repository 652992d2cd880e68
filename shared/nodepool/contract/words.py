"""The base class of enumerations on the bus, whose values are read for every message."""

from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING


class Word(StrEnum):
    """One of a few texts.

    The `value` of the standard library runs Python code on each read. Encoding a message as JSON
    reads it for each word in the message, and takes twice as long with it.
    """

    if not TYPE_CHECKING:
        value = property(attrgetter("_value_"))
