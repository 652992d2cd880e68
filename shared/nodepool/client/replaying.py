"""Sending the commands of dead letters again, if this does not undo any later change."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from nodepool.client.contents import attributes_of
from nodepool.client.dead_letters import DeadLetter, DeadLetters
from nodepool.client.errors import translate_errors
from nodepool.client.session import Session
from nodepool.contract import commands
from nodepool.contract.decode import Unreadable, build_unreadable, decode
from nodepool.contract.keys import token
from nodepool.contract.log import Entry
from nodepool.contract.messages import Command
from nodepool.contract.pods import Pod
from nodepool.contract.subjects import address_of
from nodepool.nats.log import api
from nodepool.nats.log.streams import STREAM

REPLAY_OF = "Nodepool-Replay-Of"
"""The header of a command that was sent again: the position of the command as first sent."""
LATER_MAX = 1_000
"""How many later accepted commands are examined; with more, the dead letter counts as stale."""
_PASSING = ("InternalError", "TooManyRequests")
"""The reasons of refusals for which another attempt may succeed."""
_PARTS = ("zone", "instance_type", "node", "name")
"""The fields in which a command names its object more precisely than its subject does."""


@dataclass(frozen=True, slots=True)
class Replay:
    """Whether a dead letter can be replayed.

    entry: the command to send again; None if it cannot be replayed.
    id: the command's id, which stays the same.
    why_not: why the command cannot be replayed, and what helps; empty if it can.
    is_stale: whether the command could be replayed, but would undo a later change.
    done_at: the position at which the command was accepted later; 0 if it was not.
    """

    entry: Entry | None
    id: str
    why_not: str
    is_stale: bool = False
    done_at: int = 0


class Replays:
    """Sends the commands of dead letters again, as `client.admin.replays`."""

    def __init__(self, session: Session, letters: DeadLetters) -> None:
        self._session = session
        self._letters = letters

    async def examine(self, letter: DeadLetter) -> Replay:
        """Return whether a dead letter can be replayed, and the command to send."""
        replay = await self._sent_first(letter)
        if replay.entry is None:
            return replay
        done_at, later = await self._later(letter, replay.id)
        if done_at:
            text = f"it has been accepted since, at position {done_at}"
            return Replay(None, replay.id, text, done_at=done_at)
        if len(later) > LATER_MAX:
            text = f"more than {LATER_MAX} commands were accepted later, and may be undone"
            return Replay(replay.entry, replay.id, text, is_stale=True)
        command = _command_in(replay.entry)
        for outcome in reversed(later):
            if await self._is_undone(command, letter.input, attributes_of(outcome)):
                text = f"it would undo what was accepted later, at position {outcome.position}"
                return Replay(replay.entry, replay.id, text, is_stale=True)
        return replay

    async def is_failure(self, letter: DeadLetter) -> bool:
        """Return whether a service failed on a letter that was not accepted since.

        The check costs less than `examine`. An invalid command is not a failure, because its
        sender has to correct it.
        """
        if not letter.is_command:
            return True
        replay = await self._sent_first(letter)
        return replay.entry is not None and not (await self._later(letter, replay.id))[0]

    async def _sent_first(self, letter: DeadLetter) -> Replay:
        """Return the replay of a dead letter, without a check of what came later."""
        if not letter.is_command:
            return Replay(None, "", _why_not(letter))
        entry = await self._session.message_at(letter.input)
        if entry is None and letter.input < (await self._session.bounds()).first:
            text = "its command was trimmed from the log: the archive has it, at position"
            return Replay(None, "", f"{text} {letter.input}")
        if entry is None or entry.subject != letter.subject:
            return Replay(None, "", "its command is not in the log: it is no letter of this log")
        id = _id_of(entry)
        refusal = await self._letters.refusal_of(letter)
        if refusal is not None and refusal.reason not in _PASSING:
            fault = f"{refusal.field}: {refusal.message}" if refusal.field else refusal.message
            text = f"it is refused again: {fault}; send a corrected command with a new id"
            return Replay(None, id, text)
        return Replay(entry, id, "")

    async def _later(self, letter: DeadLetter, id: str) -> tuple[int, Sequence[Entry]]:
        """Return the position at which this command was accepted since; 0 if it was not accepted.

        Also returns the outcomes of other commands on the same identity that were accepted since,
        in their order, at most LATER_MAX + 1 of them.
        """
        later: list[Entry] = []
        async with aclosing(self._accepted_since(letter)) as outcomes:
            async for outcome in outcomes:
                if attributes_of(outcome).get("correlationid") == id:
                    return outcome.position, ()
                if len(later) <= LATER_MAX:
                    later.append(outcome)
        return 0, later

    async def _accepted_since(self, letter: DeadLetter) -> AsyncGenerator[Entry, None]:
        """Yield what the service has accepted since, of commands on the identity of the letter."""
        subject = _outcome_of(letter, "CommandAccepted")
        newest = await self._session.last_message(STREAM, subject)
        if newest is None or newest.position < letter.position:
            return
        async with self._session.reader(STREAM, [subject], start=letter.position + 1) as reader:
            while reader.pending:
                for entry in await self._session.read(reader, endless=False):
                    yield entry

    async def _is_undone(
        self, command: Command | None, input: int, outcome: Mapping[str, object]
    ) -> bool:
        """Return whether a command would undo a later accepted command with this outcome."""
        data, position = outcome.get("data"), outcome.get("causeposition")
        if _changes_nothing(command) or (isinstance(data, dict) and data.get("dryRun")):
            return False
        entry = await self._session.message_at(position) if isinstance(position, int) else None
        if entry is None:
            return True
        other = _command_in(entry)
        if command is not None and other is not None and _about(other) != _about(command):
            return False
        return await self._first_sent_at(entry) > input

    async def _first_sent_at(self, entry: Entry) -> int:
        """Return the first position of a command; the position of `entry` if it is no replay."""
        text = entry.headers.get(REPLAY_OF, "")
        first = (
            await self._session.message_at(int(text))
            if text.isdecimal() and len(text) < 20
            else None
        )
        is_same = first is not None and first.subject == entry.subject
        if first is not None and is_same and _id_of(first) == _id_of(entry):
            return first.position
        return entry.position

    async def send(self, letter: DeadLetter, replay: Replay) -> tuple[int, str]:
        """Send a command again under its id; return its new position, and its outcome in words.

        The outcome is empty if no outcome comes in time.
        """
        entry = replay.entry
        assert entry is not None, "only a command is sent again"
        filters = [_outcome_of(letter, name) for name in ("CommandAccepted", "CommandRefused")]
        async with self._session.reader(STREAM, filters, at_end=True) as reader:
            with translate_errors(self._session.url):
                position = await api.publish(
                    self._session.connection,
                    entry.subject,
                    entry.content,
                    _headers(entry, replay.id),
                )
            try:
                async with asyncio.timeout(self._session.timeout_s):
                    while True:
                        outcome = _outcome(
                            await self._session.read(reader, endless=True), replay.id
                        )
                        if outcome:
                            return position, outcome
            except TimeoutError:
                return position, ""


def _id_of(entry: Entry) -> str:
    """Return the id of a command, in whichever format the command was sent."""
    return build_unreadable(entry.subject, entry.content, entry.headers, entry.position, "", "").id


def _headers(entry: Entry, id: str) -> Mapping[str, str]:
    """Return the headers of a command to send again: its own, without the headers for the server.

    If the id came from the server or from a header for the server, it becomes the CloudEvents
    attribute `id`.
    """
    kept = {key: text for key, text in entry.headers.items() if not key.lower().startswith("nats-")}
    first = kept.get(REPLAY_OF, str(entry.position))
    known = build_unreadable(entry.subject, entry.content, kept, 0, "", "").id
    return {**kept, **({} if known == id else {"ce-id": id}), REPLAY_OF: first}


def _command_in(entry: Entry) -> Command | None:
    """Return the command in a message; None if the command cannot be read."""
    address = address_of(entry.subject)
    if address is None or address.name not in commands.COMMANDS:
        return None
    kind: type[Command] = getattr(commands, address.name)
    decoded = decode(kind, entry.subject, entry.content, dict(entry.headers), entry.position)
    return None if isinstance(decoded, Unreadable) else decoded.data


def _changes_nothing(command: Command | None) -> bool:
    return isinstance(command, commands.FindCapacity) or bool(getattr(command, "dry_run", False))


def _about(command: Command) -> Sequence[object]:
    """Return the identity of the object that a command is about."""
    pod = getattr(command, "pod", None)
    name = pod.name if isinstance(pod, Pod) else None
    return (*command.path, *(getattr(command, part, name) for part in _PARTS))


def _why_not(letter: DeadLetter) -> str:
    address = letter.address
    if letter.subject.startswith("$KV."):
        return "it is an object of the read model, which is written again when it changes"
    if address is None:
        return "it is no message of the control plane"
    if address.name == "Wake":
        return f"{letter.service} does by itself, each minute, what it failed to do when it woke"
    return (
        f"{address.name} is believed from {address.service} alone; mend {letter.service}, which"
        " computes what is missing with the next message about the same object"
    )


def _outcome_of(letter: DeadLetter, name: str) -> str:
    """Return the subject of an outcome of the commands with the identity of a dead letter."""
    assert letter.address is not None, "a command has an address"
    path = ".".join(map(token, letter.address.path))
    return f"np.evt.{letter.service}.{path}.{name}"


def _outcome(entries: Sequence[Entry], id: str) -> str:
    """Return the outcome of a command in words; empty if the messages do not hold the outcome."""
    for entry in entries:
        envelope = attributes_of(entry)
        data = envelope.get("data")
        if envelope.get("correlationid") == id and isinstance(data, dict):
            if "result" in data:
                return f"accepted ({data['result']})"
            return f"refused: {data.get('message')} ({data.get('reason')})"
    return ""
