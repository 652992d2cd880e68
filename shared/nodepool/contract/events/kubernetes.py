"""The base of events that users see as Kubernetes Events."""

from typing import ClassVar, Literal

from nodepool.contract.messages import Event, OfPool

Severity = Literal["Normal", "Warning"]
"""The type of a Kubernetes Event."""


class KubernetesEvent(Event, OfPool):
    """An event that is shown on the NodePool, the Node or both, as a Kubernetes Event.

    severity: its type.
    regarding: the kinds of object that it is shown on.
    reason: its reason; the name of the class unless the class sets another.
    message: the sentence that is shown.
    node: the Node that it is about; empty where it is about the NodePool alone.

    The reasons are those that https://docs.coreweave.com/products/cks/reference/node-pool and
    https://docs.coreweave.com/platform/capacity-plans/spot-node-pools document.
    """

    severity: ClassVar[Severity] = "Normal"
    regarding: ClassVar[tuple[str, ...]] = ("NodePool",)
    reason: ClassVar[str]

    message: str
    node: str = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.reason = cls.__dict__.get("reason", cls.__name__)
