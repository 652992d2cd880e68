"""Which Nodes leave: for a technician, who replaces them, or with a rack that is too many."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, assert_never

from immutables import Map

from nodepool.contract.catalog import rack_size
from nodepool.contract.events import (
    CWNodeCordoned,
    CWNodeUncordoned,
    NodeActivityChanged,
    NodeUpdated,
)
from nodepool.contract.health import cordon_cause
from nodepool.contract.keys import MachineKey, OfferingKey, offering_parts
from nodepool.contract.model import RemovalReason
from nodepool.state.maps import mark, put
from nodepool.state.values import replace

Keys = Map[MachineKey, bool]
NodeChanged = CWNodeCordoned | CWNodeUncordoned | NodeActivityChanged | NodeUpdated
"""The messages that say whether a Node leaves, and what its drain waits for."""
NO_KEYS: Final[Keys] = Map()
_NOT_READY: Final = cordon_cause("Ready")


@dataclass(frozen=True, slots=True)
class Leaving:
    """The machines of Nodes that leave, or of Nodes on which their leaving depends.

    to_triage: the machines that go to triage when their Nodes leave, for any reason.
    replaced: the machines of each offering whose Nodes are removed as unhealthy, and replaced.
    surplus: the machines whose Nodes leave for a scale-down, of types that come in racks.
    blocked: the machines on which Pods run that a drain waits for; the wait may never end.
    silent: the machines that do not answer; their Nodes are deleted whatever runs there.
    """

    to_triage: Keys = NO_KEYS
    replaced: Map[OfferingKey, Keys] = Map()
    surplus: Keys = NO_KEYS
    blocked: Keys = NO_KEYS
    silent: Keys = NO_KEYS

    def is_lost(self, offering: OfferingKey, key: MachineKey) -> bool:
        """Return whether a Node leaves as unhealthy, and no Pod can keep it."""
        is_replaced = key in self.replaced.get(offering, NO_KEYS)
        return is_replaced and (key not in self.blocked or key in self.silent)

    def lost(self, offering: OfferingKey) -> Iterator[MachineKey]:
        """Yield the machines whose Nodes leave as unhealthy, and that no Pod can keep."""
        return (key for key in self.replaced.get(offering, ()) if self.is_lost(offering, key))

    def fold(self, offering: OfferingKey, event: NodeChanged) -> "Leaving":
        """Return what is known of leaving Nodes after an event about a Node that is there.

        Return this object itself if nothing changes, as after most of these events.
        """
        key = event.machine_key
        to_triage, blocked, silent = self.to_triage, self.blocked, self.silent
        match event:
            case CWNodeCordoned(cause=cause, triage=triage):
                to_triage = mark(to_triage, key, is_in=triage)
                silent = mark(silent, key, is_in=_NOT_READY in cause.split(","))
            case CWNodeUncordoned():
                to_triage, silent = (mark(each, key, is_in=False) for each in (to_triage, silent))
            case NodeActivityChanged(blocking_count=count):
                blocked = mark(blocked, key, is_in=count > 0)
            case NodeUpdated(removal=removal):
                return self._with_removal(offering, key, removal)
            case _:
                assert_never(event)
        if to_triage is self.to_triage and blocked is self.blocked and silent is self.silent:
            return self
        return replace(self, to_triage=to_triage, blocked=blocked, silent=silent)

    def without(self, offering: OfferingKey, key: MachineKey) -> "Leaving":
        """Return what is known of leaving Nodes after a Node has left."""
        kept = self._with_removal(offering, key, None)
        return replace(
            kept,
            to_triage=mark(self.to_triage, key, is_in=False),
            blocked=mark(self.blocked, key, is_in=False),
            silent=mark(self.silent, key, is_in=False),
        )

    def _with_removal(
        self, offering: OfferingKey, key: MachineKey, removal: RemovalReason | None
    ) -> "Leaving":
        is_racked = rack_size(offering_parts(offering)[1]) > 0
        is_surplus = is_racked and removal is RemovalReason.SCALE_DOWN
        surplus = mark(self.surplus, key, is_in=is_surplus)
        before = self.replaced.get(offering, NO_KEYS)
        after = mark(before, key, is_in=removal is RemovalReason.UNHEALTHY)
        if surplus is self.surplus and after is before:
            return self
        replaced = put(self.replaced, offering, after if len(after) else None)
        return replace(self, replaced=replaced, surplus=surplus)


NOBODY_LEAVES: Final = Leaving()
