"""The known name that a sender probably meant."""

from collections.abc import Iterable
from difflib import SequenceMatcher
from typing import Final

LENGTH_MAX: Final = 64
"""No known name is longer; the time a comparison takes grows with the square of the length."""
PART_MIN: Final = 4
"""How many characters a part of a name needs to stand for the whole."""
CLOSE: Final = 0.7
"""How similar two names have to be, from 0 to 1."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that says `name` is unknown: `; did you mean <known name>?`.

    Empty if no known name is close. Neither case nor a missing end counts as a difference. A known
    name that contains all of `name` is closer than any other. If several known names are equally
    close, the first of them is suggested.
    """
    best = closest(name, known)
    return f"; did you mean {best}?" if best else ""


def closest(name: str, known: Iterable[str]) -> str:
    """Return the known name that `did_you_mean` suggests; empty if no known name is close."""
    best = max(known, key=lambda other: _closeness(name, other), default="")
    return best if best and _closeness(name, best) >= CLOSE else ""


def _closeness(name: str, other: str) -> float:
    if not name or len(name) > LENGTH_MAX:
        return 0.0
    written, meant = name.lower(), other.lower()
    ratio = SequenceMatcher(None, written, meant).ratio()
    if len(written) < PART_MIN:
        return ratio
    beginning = SequenceMatcher(None, written, meant[: len(written)]).ratio()
    return max(ratio, beginning) + (written in meant)
