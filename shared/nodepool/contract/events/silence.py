"""What the lifecycle service says of silent Nodes: how long a silence has, and a question."""

from datetime import datetime
from typing import ClassVar

from nodepool.contract.messages import Event, OfNode


class NodeSilent(Event, OfNode):
    """A Node is silent: its condition Ready is Unknown.

    since: from when the time counts after which a silent Node is unhealthy.
    unhealthy_at: when that time is over. Then a `NodeReportRequested` asks whether the Node is
        still silent.
    is_widespread: whether most Nodes of its zone or its cluster are silent. Then this time does not
        count, and another `NodeSilent` says when it begins again.
    """

    speaker: ClassVar[str] = "lifecycle"

    since: datetime
    unhealthy_at: datetime
    is_widespread: bool = False


class NodeReportRequested(Event, OfNode):
    """The service that observes a Node has to report the condition Ready of the Node again.

    A service that is away does not answer, so that its silence is not taken for that of its Nodes.

    request: the number that the answer repeats.
    """

    speaker: ClassVar[str] = "lifecycle"

    request: int
