"""What became of a command: how outcomes are heard, and the faults a client tells its user."""

import asyncio
import json
import re
from collections.abc import Iterable
from types import TracebackType

from nats.errors import Error as NatsError

from nodepool.contract.events import CommandAccepted, CommandRefused
from nodepool.contract.log import Entry
from nodepool.contract.messages import Command, Envelope, decode, token
from nodepool.nats import errors
from nodepool.nats.reader import Reader

FILTERS_MAX = 16
"""More filters than this on one reader cost more than passing over what one wide filter brings."""
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")


class ClientError(Exception):
    """What a client may raise; the text is one line for a person."""


class Refused(ClientError):
    """The control plane refused a command: `field` is what to mend, `reason` the kind of fault."""

    def __init__(self, field: str, reason: str, message: str) -> None:
        super().__init__(f"{field}: {message} ({reason})" if field else f"{message} ({reason})")
        self.field = field
        self.reason = reason
        self.message = message


class NoOutcome(ClientError):
    """Nobody answered a command in time; it is not lost."""


class NotFound(ClientError):
    """There is no such object."""


class TimedOut(ClientError):
    """What was waited for did not come to pass in time."""


class Unreachable(ClientError):
    """No server answers, or the control plane was never set up on it."""


Outcome = CommandAccepted | Refused | NoOutcome


class Speaking:
    """Says what the engine's errors mean to the user of a client."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, errors.ServerRefusal):
            raise Unreachable(
                f"no control plane is set up at {shown(self._url)}: start one with 'nodepool up'"
            ) from None
        if isinstance(error, errors.Unreachable | errors.InDoubt | NatsError | OSError):
            raise silent(self._url) from None


class Outcomes:
    """The outcomes on one reader, each handed to whoever expects it."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._expected: dict[str, asyncio.Future[Outcome]] = {}

    def expect(self, id: str) -> "asyncio.Future[Outcome]":
        """The outcome to be of the command with this id."""
        found = self._expected[id] = asyncio.get_running_loop().create_future()
        return found

    def forget(self, id: str) -> None:
        """Nobody waits for this outcome any more."""
        self._expected.pop(id).cancel()

    async def listen(self) -> None:
        """Hands over outcomes for ever."""
        while True:
            for entry in await self._reader.next():
                self._hear(entry)

    def _hear(self, entry: Entry) -> None:
        accepted = entry.subject.endswith(f".{CommandAccepted.__name__}")
        kind = CommandAccepted if accepted else CommandRefused
        envelope = decode(kind, entry.subject, entry.content, {}, entry.position)
        if not isinstance(envelope, Envelope):
            return
        waiting = self._expected.get(envelope.correlationid or "")
        if waiting is None or waiting.done():
            return
        outcome = envelope.data
        if isinstance(outcome, CommandAccepted):
            waiting.set_result(outcome)
        elif isinstance(outcome, CommandRefused):
            waiting.set_result(Refused(outcome.field, outcome.reason, outcome.message))


def outcome_filters(commands: Iterable[Command]) -> list[str]:
    """The subjects on which the outcomes of these commands will be said."""
    paths = {tuple(map(token, command.path)) for command in commands}
    if len(paths) > 1:
        paths = {(org, cluster, "*") for org, cluster, _ in paths}
    if len(paths) > FILTERS_MAX or not paths:
        paths = {("*", "*", "*")}
    names = (CommandAccepted.__name__, CommandRefused.__name__)
    return [f"np.evt.*.{'.'.join(path)}.{name}" for path in sorted(paths) for name in names]


def misnamed(command: Command) -> Refused | None:
    """The refusal of a command whose identity cannot be part of a subject."""
    fields = ("org", "cluster", "pool") if hasattr(command, "org") else ("", "zone", "machine")
    for field, name in zip(fields, command.path, strict=True):
        if field and not _NAME.fullmatch(name):
            return _bad_name("metadata.name" if field == "pool" else field, name)
    return None


def checked(field: str, name: str) -> str:
    """The name, where it can be part of a subject; raises `Refused` for the field else."""
    if not _NAME.fullmatch(name):
        raise _bad_name(field, name)
    return name


def _bad_name(field: str, name: str) -> Refused:
    shown = json.dumps(name[:64])
    return Refused(field, "Invalid", f"{shown} is no name; use letters, digits, '-', '_' or '.'")


def unanswered(name: str, timeout_s: float, *, stored: bool) -> NoOutcome:
    """The fault of a command without an outcome, `stored` or perhaps not."""
    if not stored:
        return NoOutcome(
            f"{name} may or may not be stored: the server did not confirm it within"
            f" {timeout_s:g} s; send it again, which does no harm"
        )
    return NoOutcome(
        f"{name} was not answered within {timeout_s:g} s; nothing is lost: it lies in the log and"
        " is answered when the services run"
    )


def shown(url: str) -> str:
    """The address of a server, without the user and password that it may hold."""
    scheme, mark, rest = url.rpartition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


def silent(url: str) -> Unreachable:
    """The fault of a server that was there and does not answer."""
    return Unreachable(
        f"the server at {shown(url)} does not answer: see whether it runs, and try again"
    )
