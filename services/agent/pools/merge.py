"""What is missing for a NodePool, given what the bus says and what the cluster shows?

Both people in the cluster and commands on the bus change a NodePool, and the log decides. A change
in the cluster becomes a command. If the command loses, the agent sets the object back and records
an Event.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from agent.actions import Action, Attempt, Place, Send
from agent.pools import actions as pool_actions
from agent.pools.actions import apply_id, is_of_same_base, next_id, recorded_refusal
from agent.pools.agreement import (
    AGREED,
    Agreement,
    Differences,
    Fields,
    differences,
    digests,
    taken,
)
from agent.pools.deletion import deletion, removal
from agent.pools.objects import Log, PoolObject, SpecFault, WantedPool, fields_of, read_spec
from agent.pools.status import invalid_status, shown_status, status_patches
from agent.pools.view import Facts, PoolView
from agent.reading import Document, version_number
from nodepool.contract.commands import ApplyNodePool
from nodepool.contract.model import FINALIZER, NodePoolSpec, spec_document

IMMUTABLE: Final = frozenset(("instanceType", "computeClass"))
"""The fields that the API server refuses to change: a change of them needs a new object."""
NO_FACTS: Final = Facts()
ON_BUS: Final = "it was changed on the bus as well, and the log decides"


def missing_for_pool(
    name: str,
    wanted: WantedPool | None,
    found: PoolObject | None,
    attempt: Attempt | None,
    log: Log,
    place: Place,
    facts: Facts = NO_FACTS,
) -> Sequence[Action]:
    """Return the next few actions that bring both sides of a NodePool together, in their order.

    The caller carries them out one after the other up to the first that fails, and compares again
    when anything has changed. An empty result means that nothing is missing, or that a change is
    awaited.

    attempt: the command that was sent last for this NodePool.
    """
    if found is None:
        is_awaited = attempt is not None and _is_pending(attempt)
        if wanted is None or wanted.deleting or is_awaited or facts.is_leaving:
            return ()
        sent = facts.removed and removal(wanted, facts.removed, attempt, log, place)
        return (sent or pool_actions.create(wanted, log),)
    view = _Comparison(wanted, found, attempt, log, place, facts)
    return tuple(view.missing())


def _is_pending(attempt: Attempt) -> bool:
    return not attempt.outcome or not attempt.is_shown


class _Comparison(PoolView):
    """What is missing for a NodePool that has an object."""

    def missing(self) -> Iterator[Action]:
        """Yield the missing actions."""
        wanted, found = self.wanted, self.found
        if self.attempt is not None and _is_pending(self.attempt):
            yield from self._status()
        elif found.deleting:
            yield from deletion(self) or self._status()
        elif wanted is None:
            yield from self._without_bus()
        elif wanted.deleting:
            yield from self._leaving(wanted)
        else:
            yield from self._both(wanted)

    # The bus has no NodePool.

    def _without_bus(self) -> Iterator[Action]:
        spec = read_spec(self.found.spec)
        if self.was_deleted or self._was_created_and_deleted(spec):
            yield from self._gone(spec)
        elif isinstance(spec, SpecFault):
            message = f"{spec.field}: {spec.message}"
            yield from status_patches(self.found, invalid_status(self.found, message))
        elif FINALIZER not in self.found.finalizers:
            yield pool_actions.guard(self.found)
        else:
            yield from self._creation(spec)

    def _was_created_and_deleted(self, spec: NodePoolSpec | SpecFault) -> bool:
        attempt = self.attempt
        return (
            attempt is not None
            and isinstance(attempt.command, ApplyNodePool | None)
            and attempt.outcome == "accepted"
            and not attempt.id.startswith(f"{self.found.uid}.delete")
            and attempt.id.startswith(f"{self.found.uid}.")
        )

    def _gone(self, spec: NodePoolSpec | SpecFault) -> Iterator[Action]:
        yield pool_actions.deletion_event(self.found, sorted(self.edited(spec)))
        yield pool_actions.remove(self.found)

    def _creation(self, spec: NodePoolSpec) -> Iterator[Action]:
        id, attempt = apply_id(self.found, spec, self.wanted, self.log), self.attempt
        recorded = recorded_refusal(self.found)
        if recorded is not None and recorded.id.startswith(id):
            message = f"{recorded.field}: {recorded.message}".removeprefix(": ")
            yield from status_patches(self.found, invalid_status(self.found, message))
            return
        if attempt is not None and attempt.outcome == "refused":
            if attempt.reason == "Conflict" and attempt.id.startswith(id):
                # A NodePool of this name existed at the time of the refusal, and is gone now.
                id = next_id(attempt.id, id)
            elif attempt.id.startswith(id):
                yield pool_actions.record_refusal(self.found, attempt)
                return
        yield self._send(id, spec, None)

    def _send(self, id: str, spec: NodePoolSpec, wanted: WantedPool | None) -> Send:
        return Send(id, pool_actions.apply_command(self.found, spec, wanted, self.place))

    # The bus is deleting the NodePool.

    def _leaving(self, wanted: WantedPool) -> Iterator[Action]:
        # An object that was never shared with this log is another NodePool. It waits until the
        # NodePool on the bus is gone.
        if self.agreement is None:
            return
        edited = self.edited(read_spec(self.found.spec))
        if edited:
            yield pool_actions.deletion_event(self.found, sorted(edited))
        yield pool_actions.delete(self.found)

    # Both sides have the NodePool.

    def _both(self, wanted: WantedPool) -> Iterator[Action]:
        spec = read_spec(self.found.spec)
        if self.is_stale or self.is_behind(wanted):
            return  # The read model will show what the log says.
        if isinstance(spec, SpecFault):
            yield pool_actions.failure_event(self.found, f"{spec.field}: {spec.message}")
            yield from self._set(wanted, {*self.found.spec, *wanted.spec})
            return
        agreement = self.base(wanted, spec)
        ours, theirs = self.fields(spec), fields_of(wanted.spec, wanted.labels)
        base = self._base_fields(wanted, agreement, spec)
        diff = differences(base, digests(theirs), digests(ours))
        if diff.bus or diff.both:
            yield from self._follow(wanted, spec, diff)
        elif diff.cluster:
            yield from self._lead(wanted, spec, diff)
        elif self._is_unwritten(agreement, digests(theirs)):
            yield pool_actions.agree(wanted, self.found, self.log)
        else:
            yield from self._status()

    def _is_unwritten(self, agreement: Agreement | None, fields: Fields) -> bool:
        """Whether the object itself does not say yet that both sides agree on these fields."""
        found = self.found
        if agreement is None or AGREED not in found.annotations:
            return True
        if FINALIZER not in found.finalizers:
            return True
        return not agreement.object or agreement.fields != fields

    def _base_fields(
        self, wanted: WantedPool, agreement: Agreement | None, spec: NodePoolSpec
    ) -> dict[str, str] | None:
        """Return the last common fields: as agreed, or as in a command that was accepted since."""
        own = self.own_state(wanted, spec)
        if own is not None:
            return digests(fields_of(own.spec, own.labels))
        attempt = self.attempt
        if attempt is not None and attempt.outcome == "accepted":
            id = apply_id(self.found, spec, self.wanted, self.log)
            command = attempt.command
            if isinstance(command, ApplyNodePool) and is_of_same_base(attempt.id, id):
                sent = fields_of(spec_document(command.spec), command.metadata.labels)
                return digests(sent)
        return dict(agreement.fields) if agreement is not None else None

    def _follow(
        self, wanted: WantedPool, spec: NodePoolSpec, diff: Differences
    ) -> Iterator[Action]:
        """Yield the actions that make the object follow the bus; an Event names what is lost."""
        names, lost = diff.bus | diff.both, diff.both
        if not _is_whole(taken(spec_document(spec), wanted.spec, names)):
            names, lost = names | diff.cluster, lost | diff.cluster
        # If the bus has another NodePool of the same name, only fields edited by hand are lost.
        agreement = self.agreement
        if agreement is not None and agreement.uid != wanted.uid:
            lost &= self.edited(spec)
        ours, theirs = self.fields(spec), fields_of(wanted.spec, wanted.labels)
        yield from pool_actions.lost_events(self.found, ours, theirs, lost, ON_BUS)
        yield from self._set(wanted, names)

    def _set(self, wanted: WantedPool, names: set[str] | frozenset[str]) -> Iterator[Action]:
        changed = {name for name in names & IMMUTABLE if self._differs(wanted, name)}
        if changed:
            yield pool_actions.remove(self.found)  # The agent creates it again later.
        else:
            yield pool_actions.agree(wanted, self.found, self.log, names)

    def _differs(self, wanted: WantedPool, name: str) -> bool:
        aliases = {"Spot": "spot", "default": None}
        value = self.found.spec.get(name)
        value = aliases.get(value, value) if isinstance(value, str) else value
        return value != wanted.spec.get(name)

    def _lead(self, wanted: WantedPool, spec: NodePoolSpec, diff: Differences) -> Iterator[Action]:
        """Yield the command for the change in the cluster; undo the change if the bus refuses."""
        agreement = self.base(wanted, spec)
        theirs = fields_of(wanted.spec, wanted.labels)
        if agreement is None or agreement.fields != digests(theirs):
            # Record the agreement before sending the command. The id of the command names the
            # agreement, so this process or a later one compares the outcome with the same one.
            yield pool_actions.agree(wanted, self.found, self.log)
            return
        id, attempt = apply_id(self.found, spec, self.wanted, self.log), self.attempt
        if attempt is None or attempt.id != id:
            if FINALIZER not in self.found.finalizers:
                yield pool_actions.guard(self.found)
            else:
                yield self._send(id, spec, wanted)
            return
        if attempt.reason == "NotFound" and attempt.field != "cluster":
            return  # The bus has deleted it, and the read model will show that.
        is_newer = version_number(wanted.version) > agreement.version
        if attempt.reason == "Conflict" and is_newer:
            # The bus changed only fields that are not compared. A new agreement gives a new id.
            yield pool_actions.agree(wanted, self.found, self.log)
            return
        ours = self.fields(spec)
        why = f"{attempt.field}: {attempt.message}".removeprefix(": ")
        yield from pool_actions.lost_events(self.found, ours, theirs, diff.cluster, why)
        yield from self._set(wanted, diff.cluster)

    def _status(self) -> Iterator[Action]:
        wanted = self.wanted
        if wanted is None:
            return
        spec = read_spec(self.found.spec)
        is_same = isinstance(spec, NodePoolSpec) and spec_document(spec) == wanted.spec
        agreement = self.agreement
        generation = agreement.generation if agreement is not None else 0
        status = shown_status(wanted, self.found, generation, is_same_spec=is_same)
        yield from status_patches(self.found, status)


def _is_whole(document: Document) -> bool:
    """Whether a spec mixed of both sides is one that the API server takes."""
    spec = read_spec(document)
    if isinstance(spec, SpecFault):
        return False
    if not spec.autoscaling:
        return True
    least, most = spec.min_nodes, spec.max_nodes
    return least is not None and most is not None and least <= spec.target <= most
