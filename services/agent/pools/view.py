"""Compares a NodePool object with the bus: what both agreed on, and what has changed since."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from agent.actions import Attempt, Place
from agent.pools.actions import apply_id, content_digest, is_of_same_base, sent_as
from agent.pools.agreement import Agreement, agreement_of, digests
from agent.pools.objects import Log, PoolObject, SpecFault, WantedPool, fields_of
from agent.reading import Document, version_number
from nodepool.contract.commands import ApplyNodePool
from nodepool.contract.model import NodePoolSpec, spec_document


@dataclass(frozen=True, slots=True)
class Origin:
    """A state that a NodePool has had on the bus, and the command that led to it.

    id: the id of the command; empty if it is not known.
    position: the position in the log.
    uid, spec, labels: from the NodePool.
    """

    id: str
    position: int
    uid: str = ""
    spec: Document = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Deletion:
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
    origins: the first states in the log after the agreement, and the newest state, oldest first;
      without an agreement, the first states of the NodePool. None if the log was not asked.
    """

    deleted: Deletion = NOT_DELETED
    removed: PoolObject | None = None
    is_leaving: bool = False
    origins: Sequence[Origin] | None = None


@dataclass(frozen=True, slots=True)
class PoolView:
    """The arguments of `missing_for_pool` if there is an object."""

    wanted: WantedPool | None
    found: PoolObject
    attempt: Attempt | None
    log: Log
    place: Place
    facts: Facts

    @property
    def agreement(self) -> Agreement | None:
        """The agreement of the object, if it is of this log."""
        agreement = agreement_of(self.found)
        return agreement if agreement is not None and agreement.log == self.log.id else None

    @property
    def was_deleted(self) -> bool:
        """Whether the bus has deleted the NodePool that both sides agreed on.

        In a log restored from a backup, the deletion may have a lower position than the agreement.
        """
        agreement = self.agreement
        if self.wanted is not None or agreement is None:
            return False
        deleted = self.facts.deleted
        is_it = deleted.uid != "" and deleted.uid == agreement.uid
        return is_it or deleted.position > agreement.version

    def base(self, wanted: WantedPool, spec: NodePoolSpec) -> Agreement | None:
        """Return the agreement, if it is on this NodePool and of this history of the log."""
        agreement = self.agreement
        if agreement is None or agreement.uid != wanted.uid or self.is_restored(agreement):
            return None
        return agreement

    def is_ahead(self, agreement: Agreement) -> bool:
        """Whether the agreement is newer than what the bus shows."""
        wanted = self.wanted
        return wanted is not None and version_number(wanted.version) < agreement.version

    def is_restored(self, agreement: Agreement) -> bool:
        """Whether the log was restored from a backup that is older than the agreement."""
        is_within = self.log.start < agreement.version <= self.log.end
        return self.is_ahead(agreement) and (not is_within or self._is_new(agreement))

    def _is_new(self, agreement: Agreement) -> bool:
        """Whether the NodePool of the bus was created by this agent, after the agreement."""
        attempt, wanted = self.attempt, self.wanted
        if attempt is None or wanted is None or attempt.outcome != "accepted":
            return False
        command = attempt.command
        is_creation = isinstance(command, ApplyNodePool) and command.create_only
        return is_creation and wanted.uid != agreement.uid

    @property
    def is_stale(self) -> bool:
        """Whether the read model is older than the agreement, and must catch up first."""
        agreement = self.agreement
        return (
            agreement is not None and self.is_ahead(agreement) and not self.is_restored(agreement)
        )

    def is_behind(self, wanted: WantedPool) -> bool:
        """Return whether the log is known to have a newer state than the read model shows."""
        origins = self.facts.origins or ()
        return any(version_number(wanted.version) < each.position for each in origins)

    def own_state(self, wanted: WantedPool, spec: NodePoolSpec) -> Origin | None:
        """Return the newest state on the bus that was sent of this object after the agreement.

        The agent may have sent it and could not record yet that both agree on it. A restored backup
        of the cluster may be older than the command: an object with neither a later generation nor
        a change since the agreement is taken for that.
        """
        id = apply_id(self.found, spec, wanted, self.log)
        origins = reversed(self.facts.origins or ())
        return next((each for each in origins if self._is_own(each, wanted, spec, id)), None)

    def _is_own(self, origin: Origin, wanted: WantedPool, spec: NodePoolSpec, id: str) -> bool:
        sent = sent_as(origin.id)
        if sent is None or origin.uid != wanted.uid or not is_of_same_base(origin.id, id):
            return False
        if sent.content != content_digest(origin.spec, origin.labels, self.log):
            return False
        is_later = self.found.generation > sent.generation
        return sent.base == "new" or is_later or bool(self.edited(spec))

    def edited(self, spec: NodePoolSpec | SpecFault) -> frozenset[str]:
        """Return the fields that were changed in the cluster since the agreement."""
        agreement = self.agreement
        if agreement is None or isinstance(spec, SpecFault):
            return frozenset()
        found = digests(self.fields(spec))
        names = found.keys() | agreement.fields.keys()
        return frozenset(name for name in names if found.get(name) != agreement.fields.get(name))

    def fields(self, spec: NodePoolSpec) -> dict[str, object]:
        """Return all compared fields of the object, by name."""
        return fields_of(spec_document(spec), self.found.labels)
