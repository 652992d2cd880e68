"""Describe why an input could not be processed: an exception or unreadable content."""

from collections.abc import Sequence

from nodepool.contract.decode import Unreadable
from nodepool.contract.events import CommandRefused
from nodepool.contract.exceptions import describe
from nodepool.contract.messages import Command, Message
from nodepool.contract.subjects import Address
from nodepool.engine.bounds import Unstorable
from nodepool.service import Failure
from nodepool.state.values import replace

CAUSES_MAX = 10
"""The most failed keys of one `Wake` that its dead letter names."""


def refusal(failure: Failure) -> CommandRefused:
    """Return the outcome of a command that could not be processed."""
    org, cluster, pool = failure.address.path
    return CommandRefused(
        org=org,
        cluster=cluster,
        pool=pool,
        command=failure.input,
        reason="InternalError" if failure.is_bug else "Invalid",
        field=failure.field,
        message=failure.cause,
    )


def unreadable(message: Unreadable) -> Failure:
    """Return the failure of an input whose content cannot be read."""
    return Failure(message.address, message.address.name, message.field, message.cause)


def bug(message: Message, error: Exception) -> Failure:
    """Return the failure of an input that raised an exception, or led to an unstorable output."""
    name = type(message).__name__
    kind = "cmd" if isinstance(message, Command) else "evt"
    address = Address(kind, "", message.path, name)
    if isinstance(error, Unstorable):
        return Failure(address, name, "", str(error))
    return Failure(address, name, "", describe(error), True)


def mark_retry(failure: Failure | None, before: Failure | None) -> Failure | None:
    """Return the failure of a `Wake`, marked as a retry if the `Wake` before it failed alike.

    A key that is due again as soon as it has failed is retried without end, but parked only once.
    """
    if failure is None or failure != before:
        return failure
    return replace(failure, is_retry=True)


def merge_failures(failures: Sequence[Failure]) -> Failure | None:
    """Return the failures of a `Wake` as one failure, which names at most `CAUSES_MAX` keys.

    Retries that failed again are named only if there is no other failure.
    """
    failures = [failure for failure in failures if not failure.is_retry] or failures
    if len(failures) < 2:
        return failures[0] if failures else None
    causes = [f"{failure.key}: {failure.cause}" for failure in failures[:CAUSES_MAX]]
    if len(failures) > CAUSES_MAX:
        causes.append(f"and {len(failures) - CAUSES_MAX} keys more")
    return replace(failures[0], key="", cause="; ".join(causes))
