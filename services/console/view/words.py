"""States as a word, a shape and a colour; a class of the style sheet names shape and colour."""

from typing import Final, Literal, NamedTuple

Look = Literal["ok", "idle", "go", "wait", "act", "bad", "out", "off", "ask", "no"]
"""A shape and its colour.

ok, idle: well, a disc or a ring. go: in progress, half a disc. wait: ends by itself, a triangle.
act: needs a person, a diamond. bad: broken, a cross. out: leaving, a triangle downwards.
off: held by hand, a barred ring. ask: no news, a dashed ring. no: not available, a bar.
"""


class Word(NamedTuple):
    """A state as people read it."""

    look: Look
    text: str

    @property
    def is_well(self) -> bool:
        """Return whether nothing is wrong, so that the word is not bold."""
        return self.look in ("ok", "idle", "no", "ask")


_REASONS: Final[dict[Look, tuple[str, ...]]] = {
    "ok": ("TargetMet", "Valid", "Sufficient", "Under", "Complete", "Accepted"),
    "go": ("OverTarget", "PendingDelete", "Pending"),
    "wait": (
        *("NoneAvailable", "NoneAvailableNodeAffinity", "Partial", "PartialNodeAffinity"),
        "UnderTarget",
    ),
    "act": ("Over", "NotSet", "Invalid", "NoQuota", "PolicyViolation"),
    "bad": ("InternalError",),
}
_LOOKS: Final = {reason: look for look, reasons in _REASONS.items() for reason in reasons}


def word_of_reason(reason: str) -> Word:
    """Return the reason of a condition as a word."""
    return Word(_LOOKS.get(reason, "ask"), reason)
