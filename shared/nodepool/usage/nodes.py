"""A Node as its use depends on it, after each event."""

from typing import Final, NamedTuple, assert_never, cast

from nodepool.contract import events as on
from nodepool.contract.decode import Unreadable, decode
from nodepool.contract.keys import PoolPath
from nodepool.contract.log import Entry
from nodepool.contract.messages import Event
from nodepool.contract.model import NodePhase, RemovalReason
from nodepool.contract.node_failures import cordon_label
from nodepool.contract.subjects import address_of
from nodepool.usage.uses import Use, cause_of, use_of

Counted = (
    on.CWNodeAssigned
    | on.CWNodeRegistered
    | on.NodeUpdated
    | on.NodeActivityChanged
    | on.NodeReservationChanged
    | on.CWNodeCordoned
    | on.CWNodeUncordoned
    | on.CWDrainNode
    | on.CWNodeDeleted
    | on.CWNodeRegistrationFailed
)
"""The events on which the use of a Node depends; no others need be read."""
KINDS: Final[dict[str, type[Event]]] = {kind.__name__: kind for kind in Counted.__args__}
"""The same by name."""


class Account(NamedTuple):
    """Whose a Node is, and what it is."""

    org: str
    cluster: str
    pool: str
    instance_type: str
    compute_class: str


class CountedNode(NamedTuple):
    """A Node.

    cordon: the cause of the cordon, which may be the rack of the Node; empty without a cordon.
    cause: the cause with which it began that it cannot be used; empty while it can.
    """

    assignment: int
    account: Account
    phase: NodePhase = NodePhase.BOOTING
    is_registered: bool = False
    is_usable: bool = True
    is_active: bool = False
    removal: RemovalReason | None = None
    cordon: str = ""
    cause: str = ""

    @property
    def use(self) -> Use:
        """What it is used for."""
        return use_of(
            is_registered=self.is_registered,
            is_usable=self.is_usable,
            is_active=self.is_active,
            phase=self.phase,
            is_lost=bool(self.cause),
        )

    @property
    def entry(self) -> tuple[Account, Use, str]:
        """Where its time counts now: whose it is, its use, and the cause if it is lost."""
        use = self.use
        return self.account, use, self.cause if use is Use.LOST else ""


def event_of(entry: Entry) -> Counted | None:
    """Return the event in a message; None if it is none of those that count."""
    address = address_of(entry.subject)
    kind = KINDS.get(address.name) if address is not None else None
    if address is None or kind is None or address.service != kind.speaker:
        return None
    found = decode(kind, entry.subject, entry.content, {}, entry.position)
    return None if isinstance(found, Unreadable) else cast("Counted", found.data)


def evolve(node: CountedNode | None, event: Counted) -> CountedNode | None:
    """Return a Node after an event; None if there is none, or none any more.

    An event about another assignment changes nothing.
    """
    if isinstance(event, on.CWNodeAssigned):
        return CountedNode(event.assignment, _account(event.path, event))
    if node is None or event.assignment != node.assignment:
        return node
    after = _change(node, event)
    if after is None or not after.is_registered:
        return after
    cause = cause_of(after.cordon, after.removal, after.phase)
    return after._replace(cause=(node.cause or cause) if cause else "")


def _account(path: PoolPath, event: on.CWNodeAssigned) -> Account:
    return Account(*path, event.instance_type, event.compute_class.value)


def _change(node: CountedNode, event: Counted) -> CountedNode | None:
    match event:
        case on.NodeUpdated(phase=phase, removal=removal):
            return node._replace(phase=phase, removal=removal)
        case on.NodeActivityChanged(active=active):
            return node._replace(is_active=active)
        case on.CWNodeRegistered(phase=phase):
            return node._replace(phase=phase, is_registered=True)
        case on.CWDrainNode():
            return node._replace(phase=NodePhase.DRAINING)
        case on.NodeReservationChanged(usable=usable):
            return node._replace(is_usable=usable)
        case on.CWNodeCordoned(cause=cause):
            return node._replace(cordon=cordon_label(cause))
        case on.CWNodeUncordoned():
            return node._replace(cordon="")
        case on.CWNodeDeleted() | on.CWNodeRegistrationFailed():
            return None
        case on.CWNodeAssigned():
            return node  # Nothing else begins a Node.
        case _:
            assert_never(event)
