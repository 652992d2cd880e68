"""What both sides of a NodePool agreed on, and what the agent has sent since.

A NodePool has two writers: people in the cluster and commands on the bus. `bus` is the NodePool of
the read model, `cluster` its object. An annotation of the object holds an agreement, so a three-way
comparison tells which side has made a new change. Each command is noted there before it is sent. So
every process of the agent knows whether a change on the bus is its own, whatever the id of a
command looks like.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agent.actions import Attempt
from agent.pools.objects import Log, PoolObject, WantedPool, fields_of
from agent.reading import digest, version_number
from nodepool.contract.decode import value_in
from nodepool.contract.model import Value

AGREED: Final = "compute.coreweave.com/agreed"
"""The annotation of a NodePool object that holds its agreement, as JSON."""
REFUSED: Final = "compute.coreweave.com/refused"
"""The annotation of an object that the bus refuses: which command was refused, and why."""
SENT_MAX: Final = 8
"""How many commands an agreement names; the bus takes at most one command per agreed state."""

Fields = Mapping[str, str]
"""The digest of each non-empty field, by name.

A field is a top-level field of the spec, or all labels together (`LABELS`).
"""


class Sent(Value):
    """A command that was sent: its id, the generation of the object, and the fields' digests."""

    id: str
    generation: int
    fields: dict[str, str]


class Agreement(Value):
    """The last state on the bus that the object has taken account of: the base of the next merge.

    The object need not be equal to it: a field that people have changed since keeps its value until
    the change is sent.

    log, cluster: the epoch: the identity of the log, and the uid of the cluster; empty if unknown.
    object: the uid of the object; empty if the agent creates the object and does not know its uid.
    uid, of, version: the uid, the generation and the `resourceVersion` of the NodePool on the bus;
      the uid is empty if there is no agreement in this epoch yet.
    generation: the generation that the object had then.
    fields: the digests of the fields on the bus.
    sent: the commands that were sent since, the oldest first.
    """

    log: str
    cluster: str = ""
    object: str
    uid: str = ""
    of: int = 0
    version: int = 0
    generation: int = 0
    fields: dict[str, str] = {}  # noqa: RUF012  # Each value gets a copy.
    sent: tuple[Sent, ...] = ()

    def text(self) -> str:
        """Return the agreement as JSON text for its annotation."""
        return self.model_dump_json(exclude_defaults=True)

    def with_sent(self, command: Sent) -> "Agreement":
        """Return the agreement with a command that is sent now."""
        others = [each for each in self.sent if each.id != command.id]
        return self.model_copy(update={"sent": (*others, command)[-SENT_MAX:]})


@dataclass(frozen=True, slots=True)
class Differences:
    """The fields that differ, by the side that has changed them since the agreement."""

    bus: frozenset[str]
    cluster: frozenset[str]
    both: frozenset[str]


class Refusal(Value):
    """A refused command, as an object records it."""

    id: str
    reason: str = ""
    field: str = ""
    message: str = ""


def agreement_of(cluster: PoolObject) -> Agreement | None:
    """Return the agreement that an object carries; None if the object has no agreement of its own.

    An agreement that was copied from another object with its manifest is not its own.
    """
    read = value_in(Agreement, cluster.annotations.get(AGREED, cluster.agreed))
    is_own = isinstance(read, Agreement) and read.object in ("", cluster.uid)
    return read if is_own and isinstance(read, Agreement) else None


def agreement_in_epoch(cluster: PoolObject, bus: WantedPool | None, log: Log) -> Agreement:
    """Return the agreement of an object if it is of the current epoch; else one without a state.

    An epoch is one history of one log, with one cluster. It ends if the bus gets another log, if
    the object is moved to another cluster, and if the log goes back to a backup: then the log ends
    before the agreement, or the read model is complete past the agreement and shows an older state.
    A new epoch begins without agreements, so that the bus wins wherever both sides differ.
    """
    agreement = agreement_of(cluster)
    if agreement is not None and agreement.log == log.id:
        is_here = "" in (agreement.cluster, log.cluster) or agreement.cluster == log.cluster
        is_ahead = bus is not None and version_number(bus.version) < agreement.version
        if is_here and (not is_ahead or log.start < agreement.version <= log.end):
            return agreement
    return Agreement(log=log.id, cluster=log.cluster, object=cluster.uid)


def agree(bus: WantedPool, cluster: PoolObject | None, log: Log) -> Agreement:
    """Return the agreement on what the bus says; without an object, for the object to create."""
    return Agreement(
        log=log.id,
        cluster=log.cluster,
        object=cluster.uid if cluster is not None else "",
        uid=bus.uid,
        of=bus.generation,
        version=version_number(bus.version),
        generation=cluster.generation if cluster is not None else 1,
        fields=digests(fields_of(bus.spec, bus.labels)),
    )


def is_unresolved(agreement: Agreement, attempt: Attempt | None) -> bool:
    """Return whether a command may have changed the bus in a way that this process does not know.

    The read model may be behind a command that it is taken to show: a change of labels raises no
    generation.
    """
    if attempt is None or not is_last_sent(agreement, attempt):
        return bool(agreement.sent)
    return bool(attempt.outcome) and (attempt.outcome != "accepted" or attempt.is_shown)


def is_last_sent(agreement: Agreement, attempt: Attempt) -> bool:
    """Return whether a command is the last one that an agreement names."""
    return bool(agreement.sent) and attempt.id == agreement.sent[-1].id


def refusal_of(cluster: PoolObject) -> Attempt | None:
    """Return the refused command that an object records; None without a recorded refusal."""
    read = value_in(Refusal, cluster.annotations.get(REFUSED, ""))
    if not isinstance(read, Refusal):
        return None
    return Attempt(read.id, "refused", True, read.reason, read.field, read.message)


def digests(fields: Mapping[str, object]) -> dict[str, str]:
    """Return the digest of each field."""
    return {name: digest(value) for name, value in fields.items()}


def differences(base: Fields | None, bus: Fields, cluster: Fields) -> Differences:
    """Return the fields that differ, by the side that has changed them since `base`.

    If `base` is None, both sides count as having changed them.
    """
    by_bus, by_cluster, by_both = set(), set(), set()
    for name in bus.keys() | cluster.keys():
        on_bus, in_cluster = bus.get(name), cluster.get(name)
        if on_bus == in_cluster:
            continue
        if base is not None and in_cluster == base.get(name):
            by_bus.add(name)
        elif base is not None and on_bus == base.get(name):
            by_cluster.add(name)
        else:
            by_both.add(name)
    return Differences(frozenset(by_bus), frozenset(by_cluster), frozenset(by_both))
