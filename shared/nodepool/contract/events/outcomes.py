"""The two outcomes of a command, said by the service that hears it."""

from typing import Annotated, Literal

from pydantic import AfterValidator

from nodepool.contract.messages import OfPool, Outcome

Result = Literal["created", "configured", "unchanged", "deleted", "done"]
"""What an accepted command led to."""
RefusalReason = Literal[
    "Invalid", "Forbidden", "NotFound", "Conflict", "TooManyRequests", "InternalError"
]
"""Why a command was refused; one with TooManyRequests or InternalError may be sent again."""
QUOTED_MAX = 1_000
"""The longest field or message of a refusal, in characters."""


def _shorten(text: str) -> str:
    """Return a text that may repeat parts of the command, cut so that a refusal stays small."""
    return text if len(text) <= QUOTED_MAX else f"{text[:QUOTED_MAX]}…"


class CommandAccepted(Outcome, OfPool):
    """The command is carried out, or there is nothing left to do; it has the correlation id.

    command: the name of the command.
    result: what it led to.
    generation: the NodePool's generation after it, where it is about a NodePool.
    dry_run: whether nothing was changed because the command asked for that.
    """

    command: str
    result: Result
    generation: int | None = None
    dry_run: bool = False


class CommandRefused(Outcome, OfPool):
    """The command changed nothing.

    command: the name of the command.
    reason: why it was refused.
    field: the field to correct, as a manifest writes it; empty where it is not about one field.
    message: what is wrong, as one sentence.
    """

    command: str
    reason: RefusalReason
    field: Annotated[str, AfterValidator(_shorten)]
    message: Annotated[str, AfterValidator(_shorten)]
