"""Commit records: what a service has processed, and which messages of the log it has said.

A record is the last message of its batch, which the server stores atomically
(https://github.com/nats-io/nats-architecture-and-design/blob/main/adr/ADR-50.md). So the messages
of the batch lie directly before the record. The service did not say any other message on its
subjects.
"""

import json
from collections.abc import Iterable
from typing import NamedTuple

from nodepool.contract.decode import decode
from nodepool.contract.log import Entry, LogId
from nodepool.contract.messages import Envelope
from nodepool.contract.outcomes import CommandOutcome
from nodepool.contract.subjects import address_of
from nodepool.service import I, O, S, Service


class Record(NamedTuple):
    """The content of a commit record.

    position: the position of the last input that is processed.
    outputs: how many messages of the batch lie before the record: outputs and dead letters.
    follows: the position of the service's previous record; 0 for its first.
    log: the identity of the log.
    skipped: whether the input at `position` is passed over: a `Wake` that was too old, or an input
        that an operator chose to skip.
    """

    position: int
    outputs: int
    follows: int
    log: LogId
    skipped: bool = False

    def encode(self) -> bytes:
        """Return the record as the bytes that are stored."""
        fields: dict[str, object] = self._asdict()
        if not self.skipped:
            del fields["skipped"]
        return json.dumps(fields).encode()


class Followed(NamedTuple):
    """The content of a commit record that a replica trusts.

    position: as in the record.
    first: the position of the first message of its batch, which is the record itself if there is no
        other; 0 for records of early versions.
    skipped: as in the record.
    is_chained: whether the record says which record it follows. Records of early versions did not.
    """

    position: int
    first: int
    skipped: bool
    is_chained: bool


def follow(
    entry: Entry, log: LogId, *, committed: int, before: int, is_chained: bool
) -> Followed | None:
    """Return the trusted content of a commit record; None if it is not the service's own.

    log: the identity of the log.
    committed, before: the committed position, and where the record before this one lies.
    is_chained: whether an earlier record said which record it follows. From then on, a record that
        does not say so is not the service's own.
    """
    fields = _fields(entry)
    position = _number(fields, "position")
    if position is None or not committed <= position < entry.position:
        return None
    if "log" not in fields:
        return None if is_chained else Followed(position, 0, False, is_chained=False)
    outputs = _number(fields, "outputs")
    if outputs is None or fields["log"] != log or _number(fields, "follows") != before:
        return None
    first = entry.position - outputs
    if first <= max(position, before):
        return None
    return Followed(position, first, fields.get("skipped") is True, is_chained=True)


def outputs_by_cause(
    service: Service[S, I, O], entries: Iterable[Entry], first: int
) -> dict[int, list[O | CommandOutcome]]:
    """Return the outputs among entries on a service's own subjects, by position of their input.

    first: where the batch of a commit begins; the service did not say what lies before it.
    """
    outputs: dict[int, list[O | CommandOutcome]] = {}
    for entry in entries:
        if entry.position < first:
            continue
        address = address_of(entry.subject)
        kind = service.outputs.get(address.name) if address else None
        if kind is not None:
            envelope = decode(kind, entry.subject, entry.content, {}, entry.position)
            if isinstance(envelope, Envelope) and envelope.causeposition is not None:
                outputs.setdefault(envelope.causeposition, []).append(envelope.data)
    return outputs


def _fields(entry: Entry) -> dict[str, object]:
    try:
        fields: object = json.loads(entry.content)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _number(fields: dict[str, object], name: str) -> int | None:
    number = fields.get(name)
    return number if type(number) is int and number >= 0 else None
