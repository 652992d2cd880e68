"""The trace context that a message carries, see https://www.w3.org/TR/trace-context/."""

import re
from typing import Final

TRACE_MAX: Final = 64
"""The longest `traceparent` that is passed on, in characters."""
STATE_MAX: Final = 512
"""The longest `tracestate` that is passed on, in characters."""
_PARENT: Final = re.compile(
    "(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
)
_STATE: Final = re.compile("[ -~]+")


def traceparent_of(value: object) -> str | None:
    """Return a sender's `traceparent` as it is passed on; None if the standard says to ignore it.

    A `traceparent` of a later version is passed on as version 00, as the standard requires.
    """
    if not isinstance(value, str) or len(value) > TRACE_MAX:
        return None
    match = _PARENT.fullmatch(value)
    if match is None or (match[1] == "00" and match[5] is not None):
        return None
    return f"00-{match[2]}-{match[3]}-{match[4]}"


def tracestate_of(value: object) -> str | None:
    """Return a sender's `tracestate` as it is passed on; None if it is too long or not ASCII."""
    if not isinstance(value, str) or len(value) > STATE_MAX:
        return None
    return value if _STATE.fullmatch(value) else None
