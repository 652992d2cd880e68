"""Changes that would help a NodePool: each has an instruction for people and an action to try."""

from dataclasses import dataclass, fields
from typing import Final

from nodepool.explanation.promises import Promise, words

LISTED_MAX: Final = 18
"""The most Nodes or machines that the document of an action lists: those of one rack."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing: the control plane ends the cause by itself.

    nodes: the Nodes that the promise is about, if it is about Nodes.
    """

    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EditSpec:
    """Correct the spec; only its author knows how."""


@dataclass(frozen=True, slots=True)
class SetLimit:
    """Set the quota of the NodePool's instance type in its zone."""

    limit: int


@dataclass(frozen=True, slots=True)
class ScaleTo:
    """Scale the NodePool to this many Nodes."""

    target: int


@dataclass(frozen=True, slots=True)
class ScalePeer:
    """Scale another NodePool of the organisation, `<cluster>/<name>`, to this many Nodes.

    waits: whether work has to end first, on its Nodes or on Nodes that others give back already.
    """

    peer: str
    target: int
    waits: bool = False


@dataclass(frozen=True, slots=True)
class AddMachines:
    """Add free machines of the NodePool's type to its zone.

    domain: the NVLink domain of the machines; empty for machines without one.
    in_racks: whether the machines are whole racks, each with a new NVLink domain.
    """

    count: int
    domain: str = ""
    in_racks: bool = False


@dataclass(frozen=True, slots=True)
class RepairMachines:
    """Repair some of the machines in triage.

    count: how many machines.
    names: which machines; empty if any machines of the type in the zone help.
    """

    count: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReturnMachines:
    """Return machines that an operator holds back, or has requested but not received yet."""

    count: int


@dataclass(frozen=True, slots=True)
class DropAffinity:
    """Remove the node affinity from the spec."""


@dataclass(frozen=True, slots=True)
class PreferIdle:
    """Set `lifecycle.scaleDownStrategy` to `PreferIdle`."""


@dataclass(frozen=True, slots=True)
class EndWork:
    """End the work on some of these Nodes.

    count: on how many of these Nodes.
    """

    nodes: tuple[str, ...]
    count: int


@dataclass(frozen=True, slots=True)
class DrainNode:
    """Drain a Node.

    force: whether no Pod may block the drain.
    after_work: whether the Slurm job must end first, because a drain does not end it.
    """

    node: str
    force: bool = False
    after_work: bool = False


@dataclass(frozen=True, slots=True)
class RebootNode:
    """Reboot a Node in its NodePool.

    force: whether no Pod may block the reboot.
    after_work: whether the Slurm job must end first.
    """

    node: str
    force: bool = False
    after_work: bool = False


@dataclass(frozen=True, slots=True)
class UncordonNodes:
    """End the cordons of Nodes that commands asked for."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unreserve:
    """Reserve a Node for the organisation again.

    ends_work: whether the work on the Node must also end before the Node is usable.
    uncordons: whether the Node must be uncordoned first.
    """

    node: str
    ends_work: bool = False
    uncordons: bool = False


@dataclass(frozen=True, slots=True)
class StartService:
    """Start a service that does not answer."""

    name: str


Action = (
    Wait
    | EditSpec
    | SetLimit
    | ScaleTo
    | ScalePeer
    | AddMachines
    | RepairMachines
    | ReturnMachines
    | DropAffinity
    | PreferIdle
    | EndWork
    | DrainNode
    | RebootNode
    | UncordonNodes
    | Unreserve
    | StartService
)


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that ends a cause.

    text: an instruction without a full stop.
    action: the same change for programs, which can try it.
    promise: the effect of the change.
    """

    text: str
    action: Action
    promise: Promise = Promise.ENDS

    @property
    def document(self) -> dict[str, object]:
        """Return the action as a JSON object; `kind` is its class."""
        values: dict[str, object] = {"kind": type(self.action).__name__}
        for each in fields(self.action):
            value = getattr(self.action, each.name)
            first, *others = each.name.split("_")
            name = first + "".join(map(str.capitalize, others))
            values[name] = list(value[:LISTED_MAX]) if isinstance(value, tuple) else value
        return values


def promise(text: str, action: Action, promise: Promise, pool: str, joint: str = "; ") -> Remedy:
    """Return an instruction that says what it promises to the readers of a NodePool."""
    then = words(promise, pool)
    return Remedy(f"{text}{joint}{then}" if then else text, action, promise)
