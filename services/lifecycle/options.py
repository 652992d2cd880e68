"""The settings of the lifecycle service, and their effect on the events that it publishes.

An option changes what is published, and never how a message changes the state. So replicas with
different options build the same state from the log. Each event follows the options of the replica
that published the event.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from lifecycle.deadlines import UNHEALTHY_AFTER
from nodepool.contract import events as on
from nodepool.contract.messages import Message, pool_fields
from nodepool.contract.model import RESERVED, Taint
from nodepool.contract.pods import reserved_taint
from nodepool.contract.production import PRODUCTION
from nodepool.contract.timetable import ANSWER_WITHIN

E = TypeVar("E", bound=Message)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the lifecycle service.

    answer_within: how long a machine has to answer a cordon or a drain.
    unhealthy_after: how long a Node must be silent to become unhealthy.
    registration_failed_event: whether `CWRegistrationFailedEvent` is published in addition to
        `CWNodeRegistrationFailed`.
    reserved_taint: whether Nodes in production also have the taint of their reservation.
    """

    answer_within: timedelta = ANSWER_WITHIN
    unhealthy_after: timedelta = UNHEALTHY_AFTER
    registration_failed_event: bool = False
    reserved_taint: bool = True


def with_options(event: E, options: Options) -> Iterator[E | on.CWRegistrationFailedEvent]:
    """Yield an event as these options change it, and the event that they add."""
    taints: tuple[Taint, ...] | None = None
    if options.reserved_taint and isinstance(event, on.NodeUpdated | on.CWNodeRegistered):
        taints = _add_reservation_taint(event)
    yield event if taints is None else event.model_copy(update={"taints": taints})
    if options.registration_failed_event and isinstance(event, on.CWNodeRegistrationFailed):
        yield on.CWRegistrationFailedEvent(
            **pool_fields(event.key), node=event.node, message=event.message
        )


def _add_reservation_taint(event: on.NodeUpdated | on.CWNodeRegistered) -> tuple[Taint, ...]:
    """Return the taints of a Node in production with the taint of its reservation."""
    if event.labels["node.coreweave.cloud/state"] != PRODUCTION:
        return event.taints
    kind, *rest = event.taints
    own = reserved_taint(event.labels[RESERVED])
    return event.taints if own in rest else (kind, own, *rest)
