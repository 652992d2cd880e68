"""A NodePool as both sides have it, and what follows from that alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from agent.actions import Attempt, Place
from agent.pools.agreement import (
    Agreement,
    Fields,
    Sent,
    agree,
    agreement_in_epoch,
    agreement_of,
    differences,
    digests,
    is_last_sent,
    refusal_of,
)
from agent.pools.objects import Log, PoolObject, SpecFault, WantedPool, fields_of, read_spec
from agent.reading import command_id, version_number
from nodepool.contract.model import NodePoolSpec, spec_document

NO_FIELDS: Final = frozenset[str]()


class Origin(NamedTuple):
    """A state that a NodePool has had on the bus.

    id: the id of the command that led to it; empty if it is not known.
    position: the position in the log.
    uid: the uid of the NodePool.
    """

    id: str
    position: int
    uid: str = ""


class Deletion(NamedTuple):
    """The newest deletion of a NodePool with a given name.

    position: the position in the log; 0 if the log has no deletion.
    uid: the uid of the deleted NodePool; empty if it is not known.
    """

    position: int = 0
    uid: str = ""


NOT_DELETED: Final = Deletion()


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts that are requested only if they matter.

    deleted: the newest deletion of a NodePool of this name, read later than the read model.
    removed: the last object of this name, as it was when a watch reported its deletion; None if no
      object was deleted, or if there is another object now.
    is_leaving: whether the kind NodePool itself is being deleted, and all objects with it.
    origins: states in the log after the agreement, the oldest first, if the agreement names a
      command whose outcome is not known, or if the read model lacks the NodePool.
    """

    deleted: Deletion = NOT_DELETED
    removed: PoolObject | None = None
    is_leaving: bool = False
    origins: Sequence[Origin] = ()


@dataclass(frozen=True)
class Sides:
    """A NodePool as both sides have it.

    bus: the NodePool of the read model; None if the read model lacks the NodePool.
    cluster: its object; if `has_object` is false, the object that was deleted, or an empty object.
    attempt: the command that was sent last.
    """

    bus: WantedPool | None
    cluster: PoolObject
    has_object: bool
    attempt: Attempt | None
    log: Log
    place: Place
    facts: Facts

    @cached_property
    def spec(self) -> NodePoolSpec | SpecFault:
        """The spec of the object, or why it is invalid."""
        return read_spec(self.cluster.spec)

    @cached_property
    def agreement(self) -> Agreement:
        """The agreement in the current epoch."""
        return agreement_in_epoch(self.cluster, self.bus, self.log)

    @property
    def agreed_uid(self) -> str:
        """The uid of the NodePool of this log that the object stood for last; empty if unknown."""
        last = agreement_of(self.cluster)
        return last.uid if last is not None and last.log == self.log.id else ""

    @cached_property
    def cluster_fields(self) -> Mapping[str, object]:
        """All compared fields of the object, by name; none if its spec is invalid."""
        spec = self.spec
        if isinstance(spec, SpecFault):
            return {}
        return fields_of(spec_document(spec), self.cluster.labels)

    @cached_property
    def bus_fields(self) -> Mapping[str, object]:
        """All compared fields of the NodePool on the bus, by name."""
        bus = self.bus
        return {} if bus is None else fields_of(bus.spec, bus.labels)

    @property
    def edited(self) -> frozenset[str]:
        """The fields that were changed in the cluster since the agreement."""
        if not self.agreement.uid or isinstance(self.spec, SpecFault):
            return NO_FIELDS
        diff = differences(
            self.agreement.fields, self.agreement.fields, digests(self.cluster_fields)
        )
        return diff.cluster

    @property
    def is_awaited(self) -> bool:
        """Whether a command has no outcome yet, or the read model does not show its outcome."""
        attempt = self.attempt
        return attempt is not None and not (attempt.outcome and attempt.is_shown)

    @property
    def is_behind(self) -> bool:
        """Whether the read model is known to be older than the agreement, or than the log."""
        version = version_number(self.bus.version) if self.bus is not None else 0
        newest = max((each.position for each in self.facts.origins), default=0)
        return version < max(self.agreement.version, newest)

    @property
    def may_arrive(self) -> bool:
        """Return whether the log may still get the last command that the agreement names."""
        attempt, sent = self.attempt, self._sent
        is_known = attempt is not None and is_last_sent(self.agreement, attempt)
        return (
            bool(sent) and not is_known and not any(each.id in sent for each in self.facts.origins)
        )

    @property
    def is_hidden(self) -> bool:
        """Return whether the log has the NodePool of the object, and the read model lacks it."""
        uid = self.agreed_uid
        return uid != "" and any(origin.uid == uid for origin in self.facts.origins)

    @property
    def was_deleted(self) -> bool:
        """Return whether the bus has deleted the NodePool that the object stands for."""
        uid, deleted = self.agreed_uid, self.facts.deleted
        if self.bus is not None:
            return False
        if self.attempt is not None and self._has_taken(self.attempt):
            return True  # It was created, and has gone since.
        return uid != "" and (deleted.uid == uid or deleted.position > self.agreement.version)

    def _has_taken(self, attempt: Attempt) -> bool:
        return attempt.outcome == "accepted" and attempt.id in self._sent

    @property
    def _sent(self) -> Mapping[str, Sent]:
        return {each.id: each for each in self.agreement.sent}

    @property
    def base(self) -> Fields | None:
        """The fields from which each side may have changed: as agreed, or as the bus took them."""
        bus, agreement = self.bus, self.agreement
        if self.attempt is not None and self._has_taken(self.attempt):
            return self._sent[self.attempt.id].fields
        for origin in reversed(self.facts.origins):
            if origin.id in self._sent and bus is not None and origin.uid == bus.uid:
                return self._sent[origin.id].fields
        is_same = bus is not None and agreement.uid == bus.uid
        return agreement.fields if is_same else None

    @property
    def next_agreement(self) -> Agreement:
        """The agreement from which the next command starts, which it names as sent."""
        bus, cluster, attempt = self.bus, self.cluster, self.attempt
        start, fields = self.agreement, digests(self.cluster_fields)
        if bus is None:
            if start.uid:
                start = Agreement(log=start.log, cluster=start.cluster, object=start.object)
        elif (start.uid, start.fields) != (bus.uid, digests(self.bus_fields)) or self._is_outdated(
            attempt
        ):
            start = agree(bus, cluster, self.log)
        id = command_id(self.log.id, cluster.uid, cluster.generation, start.version, fields)
        if bus is None and attempt is not None and self._is_of_now(attempt):
            # A NodePool of this name existed at the time of the refusal, and is gone now.
            id = command_id(attempt.id)
        return start.with_sent(Sent(id=id, generation=cluster.generation, fields=fields))

    def _is_of_now(self, attempt: Attempt) -> bool:
        """Return whether a command asks for what the object says now."""
        sent = self._sent.get(attempt.id)
        asked = digests(self.cluster_fields)
        return sent is not None and (sent.generation, sent.fields) == (
            self.cluster.generation,
            asked,
        )

    @property
    def deletion_id(self) -> str:
        """The id of the command that deletes the NodePool because its object is deleted."""
        return command_id(self.cluster.uid, "delete", self.agreed_uid)

    @property
    def is_deletion_sent(self) -> bool:
        """Return whether the command that was sent last is this deletion."""
        return self.attempt is not None and self.attempt.id == self.deletion_id

    @property
    def refusal(self) -> Attempt | None:
        """The refusal of the current content of the object, if it still holds; None otherwise.

        A refusal for a Conflict no longer holds once the NodePool has changed on the bus, or is
        gone: then the change is merged again, and sent again if the bus has not changed its fields.
        """
        is_gone = self.cluster.deleting or not self.has_object
        for refused in self._list_refusals():
            if is_gone:
                is_of_now = refused.id == self.deletion_id
            else:
                is_of_now = self._is_of_now(refused) and not self._is_outdated(refused)
            if is_of_now:
                return refused
        return None

    def _list_refusals(self) -> Iterator[Attempt]:
        if self.attempt is not None and self.attempt.outcome == "refused":
            yield self.attempt
        if (recorded := refusal_of(self.cluster)) is not None:
            yield recorded

    def _is_outdated(self, attempt: Attempt | None) -> bool:
        """Return whether a refusal for a Conflict no longer holds, so that `merge` decides again.

        A conflict is over if the NodePool has changed on the bus since, even in fields that are
        not compared, or if the NodePool that had the name is gone.
        """
        if attempt is None or attempt.reason != "Conflict":
            return False
        bus = self.bus
        return bus is None or version_number(bus.version) > self.agreement.version
