"""What the gateway replies if it does not do what was asked."""

import json
from dataclasses import dataclass
from typing import Final, Literal

Reason = Literal[
    "Invalid", "Forbidden", "NotFound", "Expired", "TooManyRequests", "Behind", "Unavailable"
]
"""Why something is refused; what is refused with one of the last three may be sent again."""
CODES: Final[dict[Reason, int]] = {
    "Invalid": 400,
    "Forbidden": 403,
    "NotFound": 404,
    "Expired": 410,
    "TooManyRequests": 429,
    "Behind": 503,
    "Unavailable": 503,
}
"""The code of each reason in the header `Nats-Service-Error-Code`, as in HTTP."""
QUOTED_MAX: Final = 500
"""The most characters of each text of a refusal, which may repeat what a sender wrote."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why something is not done.

    error: what is wrong, as one sentence.
    field: the field to correct, as the sender writes it; empty if it is not about a field.
    fix: what to do.
    id: the id of the command, if it could be read.
    """

    reason: Reason
    error: str
    fix: str
    field: str = ""
    id: str = ""

    @property
    def content(self) -> bytes:
        """The reply as JSON."""
        texts = {"reason": self.reason, "error": self.error, "field": self.field, "fix": self.fix}
        shown = {name: _cut(text) for name, text in texts.items()}
        return json.dumps({**({"id": self.id} if self.id else {}), **shown}).encode()

    @property
    def headers(self) -> dict[str, str]:
        """The headers with which NATS services mark an error."""
        code = str(CODES[self.reason])
        return {"Nats-Service-Error-Code": code, "Nats-Service-Error": self.reason}


def _cut(text: str) -> str:
    return text if len(text) <= QUOTED_MAX else f"{text[:QUOTED_MAX]}…"
