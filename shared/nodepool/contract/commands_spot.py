"""The commands about spot Nodes that give way, and about machines that are held back."""

from typing import Annotated

from pydantic import Field

from nodepool.contract.messages import Command, OfPool, OfZone
from nodepool.contract.model import NODES_MAX


class AcknowledgePreemption(Command, OfPool):
    """Ends the warning of a preempted Node: its drain begins now, not two minutes after it.

    The Node goes as soon as it is drained. Refused for a Node that is not being preempted.

    node: its name.
    """

    node: str


class ReclaimCapacity(Command, OfZone):
    """Holds machines back, so that no NodePool has them, until `ReturnCapacity` gives them back.

    Free machines are taken first, then those of Nodes that leave anyway, then spot Nodes are
    preempted. Refused where there are not so many of all; of a type that comes in racks, only free
    machines in whole racks count.

    instance_type: their type.
    count: how many, beside those that are held back already.
    """

    instance_type: str
    count: Annotated[int, Field(ge=1, le=NODES_MAX)]


class ReturnCapacity(Command, OfZone):
    """Gives machines back that `ReclaimCapacity` holds back; they are free then.

    Refused where fewer are held back. A preemption that has begun for them is carried out.

    instance_type: their type.
    count: how many.
    """

    instance_type: str
    count: Annotated[int, Field(ge=1, le=NODES_MAX)]
