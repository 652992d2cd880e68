"""Who sent which command, and what became of it: computed from the messages of the log."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from typing import Final, NamedTuple

from nodepool.client.contents import attributes_of, data_of
from nodepool.contract.actors import Actor, actor_in
from nodepool.contract.documents import field, text
from nodepool.contract.keys import FLEET, UNNAMED, PoolPath, token
from nodepool.contract.log import Entry
from nodepool.contract.services import SERVICES
from nodepool.contract.subjects import address_of

RECORDS_MAX: Final = 500
"""How many commands are kept while the log is read, unless the caller sets another number."""
REFUSED: Final = "CommandRefused"
OUTCOMES: Final = ("CommandAccepted", REFUSED, "CapacityFound", "NodeLockChanged")
"""The events that answer a command."""
OPERATOR: Final = "operator"
UNKNOWN: Final = "-"


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a command.

    result: `accepted` or `refused`.
    detail: what the command led to, such as `configured`, or the reason of the refusal.
    field, message: the field to correct and the sentence of a refusal.
    """

    result: str
    detail: str = ""
    field: str = ""
    message: str = ""

    @property
    def is_refusal(self) -> bool:
        """Whether the command has changed nothing."""
        return self.result == "refused"


@dataclass(frozen=True, slots=True)
class CommandRecord:
    """A command of the log.

    position, time: where and when the command was stored.
    actor: who sent the command; None for a command that did not come through the gateway.
    user: the name of the sender: `acme/alice`, or `operator`.
    command: the name of the command.
    path: the identity that the command is about.
    kind, name: the kind and the name of the object, such as `nodepool` and `training`.
    id: the id that the sender gave the command.
    source: the program that sent the command, as it says.
    outcome: None while the command has no outcome.
    """

    position: int
    time: datetime
    actor: Actor | None
    user: str
    command: str
    path: PoolPath
    kind: str
    name: str
    id: str
    source: str
    outcome: Done | None = None


def user_of(actor: object) -> str:
    """Return who an attribute `actor` names: `acme/alice`, `operator`, a service, or `-`."""
    if actor is None:
        return OPERATOR
    if actor in SERVICES:
        return str(actor)
    found = actor_in(actor) if isinstance(actor, str) else None
    return UNKNOWN if found is None else f"{found.org}/{found.user}"


def command_record(entry: Entry) -> CommandRecord | None:
    """Return the record of a message of the log; None if the message is no command."""
    address = address_of(entry.subject)
    if address is None or address.kind != "cmd":
        return None
    content = attributes_of(entry)
    # Bare JSON has no attributes: a field of the data names nobody.
    attributes = content if "specversion" in content else {}
    data = attributes.get("data") if attributes else content
    actor = attributes.get("actor")
    kind, name = _object_of(address.path, data if isinstance(data, dict) else {})
    return CommandRecord(
        position=entry.position,
        time=entry.time,
        actor=actor_in(actor) if isinstance(actor, str) else None,
        user=user_of(actor),
        command=address.name,
        path=address.path,
        kind=kind,
        name=name,
        id=str(attributes.get("id") or (entry.headers or {}).get("ce-id") or entry.position),
        source=str(attributes.get("source") or ""),
    )


def _object_of(path: PoolPath, data: Mapping[str, object]) -> tuple[str, str]:
    org, cluster, pool = path
    if isinstance(node := data.get("node"), str):
        return "node", node
    if pool != UNNAMED:
        return ("machine" if org == FLEET else "nodepool"), pool
    if cluster != UNNAMED:
        return ("zone" if org == FLEET else "cluster"), cluster
    zone, kind = data.get("zone"), data.get("instanceType")
    return ("quota", f"{zone}.{kind}") if zone and kind else ("organisation", org)


def outcome_of(entry: Entry) -> tuple[int, Done] | None:
    """Return the position of the command that a message answers, and the outcome; or None."""
    address = address_of(entry.subject)
    if address is None or address.kind != "evt" or address.name not in OUTCOMES:
        return None
    attributes = attributes_of(entry)
    position, data = attributes.get("causeposition"), attributes.get("data")
    if not isinstance(position, int) or not isinstance(data, dict):
        return None
    if address.name == REFUSED:
        return position, Done("refused", *(str(data.get(name, "")) for name in _REFUSAL))
    detail = str(data.get("result") or data.get("lock") or "")
    return position, Done("accepted", f"{detail} (dry run)" if data.get("dryRun") else detail)


_REFUSAL: Final = ("reason", "field", "message")


def change_position(validated: Entry | None, deleting: Entry | None) -> int:
    """Return the position of the command that changed a NodePool last; 0 if there is none.

    validated, deleting: the newest messages of these names about the NodePool, of the validator.
    """
    version = data_of(validated).get("version") if validated else 0
    cause = attributes_of(deleting).get("causeposition") if deleting else 0
    return max((each for each in (version, cause) if isinstance(each, int)), default=0)


def encode_record(record: CommandRecord) -> bytes:
    """Return a command as an item of the answer of the gateway."""
    actor = record.actor.text if record.actor is not None else None
    time = record.time.isoformat()
    return json.dumps({**asdict(record), "time": time, "actor": actor}).encode()


def record_in(item: object) -> CommandRecord:
    """Return the command in an item of the answer of the gateway."""
    outcome, position, path = (field(item, name) for name in ("outcome", "position", "path"))
    org, cluster, pool = map(str, path if isinstance(path, list) else ("", "", ""))
    names = ("user", "command", "kind", "name", "id", "source")
    return CommandRecord(
        position=position if isinstance(position, int) else 0,
        time=datetime.fromisoformat(text(item, "time")),
        actor=actor_in(text(item, "actor")),
        path=(org, cluster, pool),
        outcome=Done(*(text(outcome, name) for name in _DONE)) if outcome else None,
        **{name: text(item, name) for name in names},
    )


_DONE: Final = tuple(each.name for each in fields(Done))


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which commands to keep.

    since: the time of the first command; None for any.
    by: the sender: `alice`, `acme/alice` or `operator`; empty for any.
    kind, name: the object, and its kind; empty for any.
    """

    since: datetime | None = None
    by: str = ""
    kind: str = ""
    name: str = ""

    def includes(self, record: CommandRecord) -> bool:
        """Return whether to keep a command."""
        return (
            (self.since is None or record.time >= self.since)
            and self.by in ("", record.user, record.user.partition("/")[2])
            and self.kind in ("", record.kind)
            and self.name in ("", record.name)
        )


class Place(NamedTuple):
    """Where the commands to read are about; an empty name stands for all.

    org: the organisation.
    """

    org: str
    cluster: str = ""
    pool: str = ""

    @property
    def filter(self) -> str:
        """The three tokens of the subjects."""
        return ".".join(token(name) if name else "*" for name in self)


def filters_of(place: Place) -> list[str]:
    """Return the filters for the commands about a place, and for their outcomes."""
    answers = (f"np.evt.*.{place.filter}.{name}" for name in OUTCOMES)
    return [f"np.cmd.{place.filter}.*", *answers]


class Trail:
    """The commands found while the log is read, oldest first; if too many, only the newest.

    older: how many commands were found and dropped.
    """

    def __init__(self, wanted: Wanted, most: int = RECORDS_MAX) -> None:
        self.wanted = wanted
        self._most = most
        self._known: dict[int, CommandRecord] = {}
        self.older = 0

    def read(self, entries: Iterable[Entry]) -> None:
        """Take commands and outcomes, in the order of the log."""
        for entry in entries:
            record = command_record(entry)
            if record is not None:
                self.add(record)
            elif (answer := outcome_of(entry)) is not None:
                self._answer(*answer)

    def add(self, record: CommandRecord) -> None:
        """Take a command."""
        if not self.wanted.includes(record):
            return
        self._known[record.position] = record
        if len(self._known) > self._most:
            del self._known[next(iter(self._known))]
            self.older += 1

    def _answer(self, position: int, outcome: Done) -> None:
        record = self._known.get(position)
        if record is not None and record.outcome is None:
            self._known[position] = replace(record, outcome=outcome)

    def all(self) -> list[CommandRecord]:
        """Return the commands, oldest first."""
        return list(self._known.values())
