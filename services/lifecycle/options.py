"""What the lifecycle service can be told to do otherwise, and how that shows in what it says.

An option changes what is said and never what is folded. So replicas with different options fold the
same state: those of the one that stored a message count for it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from lifecycle import Says
from lifecycle.node import ANSWER_WITHIN
from lifecycle.template import PRODUCTION, RESERVED, reserved_taint
from nodepool.contract.events import (
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    CWRegistrationFailedEvent,
    NodeUpdated,
)
from nodepool.contract.messages import pool_fields


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the lifecycle service.

    answer_within: how long a machine has to answer a cordon or a drain.
    registration_failed_event: whether `CWRegistrationFailedEvent` is said beside
        `CWNodeRegistrationFailed`.
    reserved_taint: whether Nodes in production have the taint of their reservation as well.
    """

    answer_within: timedelta = ANSWER_WITHIN
    registration_failed_event: bool = False
    reserved_taint: bool = False


def with_options(event: Says, options: Options) -> Iterator[Says]:
    """An event as it is said with these options, and what is said beside it."""
    match event:
        case CWNodeRegistrationFailed() if options.registration_failed_event:
            yield event
            yield CWRegistrationFailedEvent(
                **pool_fields(event.key), node=event.node, message=event.message
            )
        case NodeUpdated() | CWNodeRegistered() if options.reserved_taint:
            yield _tainted(event)
        case _:
            yield event


def _tainted(event: NodeUpdated | CWNodeRegistered) -> NodeUpdated | CWNodeRegistered:
    """The Node with the taint of its reservation before that of a cordon."""
    if event.labels["node.coreweave.cloud/state"] != PRODUCTION:
        return event
    kind, *rest = event.taints
    taints = (kind, reserved_taint(event.labels[RESERVED]), *rest)
    return event.model_copy(update={"taints": taints})
