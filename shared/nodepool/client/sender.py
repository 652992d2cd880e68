"""Sending one command: publishing it as a CloudEvent, and awaiting its outcome."""

import asyncio
import random
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Generic, TypeVar
from uuid import uuid4

from nodepool.client.backend import Heard
from nodepool.client.errors import NoOutcome, Refused, no_outcome
from nodepool.client.names import find_name_refusal
from nodepool.client.session import FILTERS_MAX
from nodepool.client.tracing import sending
from nodepool.contract.decode import decode
from nodepool.contract.events import CapacityFound, CommandAccepted, CommandRefused, NodeLockChanged
from nodepool.contract.keys import token
from nodepool.contract.log import Entry
from nodepool.contract.messages import ID_MAX, Command, Envelope, Event, wrap
from nodepool.contract.opening import size_fault
from nodepool.contract.subjects import subject_of
from nodepool.engine.waiting import TOO_MANY
from nodepool.nats.log import api
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import Busy, Denied, InDoubt, ServerRefusal
from nodepool.nats.wire.waiting import RETRY_MAX_S, RETRY_S
from nodepool.state.back_off import pause_s

Outcome = CommandAccepted | Refused | NoOutcome
A = TypeVar("A", bound=CommandAccepted | CapacityFound | NodeLockChanged)
"""The event that answers a command that is not refused."""
PUBLISH_S = 2.0
"""How long one attempt to publish may take, in seconds."""
WAIT_S = 0.5
"""The pause before a command that was one too many is sent again, in seconds.

Each further pause is twice as long.
"""
WAIT_MAX_S = 2.0
"""The longest such pause, in seconds."""


class PendingOutcomes(Generic[A]):
    """Passes each outcome that arrives to the future that awaits the outcome.

    heard: what is heard on the subjects of `outcome_filters`.
    answer: the event that answers a command that is not refused.
    """

    def __init__(self, heard: Heard, answer: type[A]) -> None:
        self._heard = heard
        self._answer = answer
        self._pending: dict[str, asyncio.Future[A | Refused | NoOutcome]] = {}

    def expect(self, id: str) -> asyncio.Future[A | Refused | NoOutcome]:
        """Return a future for the outcome of the command with this id."""
        future: asyncio.Future[A | Refused | NoOutcome] = asyncio.get_running_loop().create_future()
        self._pending[id] = future
        return future

    def forget(self, id: str) -> None:
        """Cancel and drop the future of the command with this id."""
        self._pending.pop(id).cancel()

    async def listen(self) -> None:
        """Pass on outcomes until the task is cancelled."""
        while True:
            for entry in await self._heard.next():
                self.receive(entry)

    def receive(self, entry: Entry) -> None:
        """Resolve the future of the command of this outcome, if a sender awaits the outcome."""
        is_answer = entry.subject.endswith(f".{self._answer.__name__}")
        kind: type[A] | type[CommandRefused] = self._answer if is_answer else CommandRefused
        envelope = decode(kind, entry.subject, entry.content, {}, entry.position)
        if not isinstance(envelope, Envelope):
            return
        future = self._pending.get(envelope.correlationid or "")
        if future is None or future.done():
            return
        match envelope.data:
            case CommandRefused(field=field, reason=reason, message=message):
                future.set_result(Refused(field, reason, message))
            case answer:
                future.set_result(answer)


def outcome_filters(
    commands: Iterable[Command], answer: type[Event] = CommandAccepted
) -> list[str]:
    """Return the subject filters for the outcomes of these commands: `answer`, or a refusal."""
    paths = {tuple(map(token, command.path)) for command in commands}
    if len(paths) > 1:
        paths = {(org, cluster, "*") for org, cluster, _ in paths}
    if len(paths) > FILTERS_MAX or not paths:
        paths = {("*", "*", "*")}
    names = (answer.__name__, CommandRefused.__name__)
    return [f"np.evt.*.{'.'.join(path)}.{name}" for path in sorted(paths) for name in names]


class Sender(Generic[A]):
    """Sends commands on one connection; many commands may be in flight at the same time.

    source: the `source` of each CloudEvent.
    timeout_s: how long an outcome may take, in seconds.
    """

    def __init__(
        self,
        connection: Connection,
        outcomes: PendingOutcomes[A],
        *,
        source: str,
        timeout_s: float,
    ) -> None:
        self._connection = connection
        self._outcomes = outcomes
        self._source = source
        self._timeout_s = timeout_s

    async def send(self, command: Command, id: str = "") -> A | Refused | NoOutcome:
        """Return the outcome of a command; send it only if its names, id and size are valid.

        If a command is refused because too many commands are waiting, it is sent again, until the
        time is up.

        id: the id of the command, which may be in flight only once at a time; without an id, each
          attempt has an id of its own.
        """
        refusal = find_name_refusal(command) or _find_id_refusal(id)
        if refusal is not None:
            return refusal
        clock = asyncio.get_running_loop().time
        ends, refusals = clock() + self._timeout_s, 0
        while True:
            outcome = await self._attempt(command, id or str(uuid4()), ends - clock())
            is_excess = isinstance(outcome, Refused) and outcome.reason == TOO_MANY
            refusals += 1
            wait_s = pause_s(refusals, WAIT_S, WAIT_MAX_S, random.random())
            if not is_excess or clock() + wait_s >= ends:
                return outcome
            await asyncio.sleep(wait_s)

    async def _attempt(
        self, command: Command, id: str, timeout_s: float
    ) -> A | Refused | NoOutcome:
        name = type(command).__name__
        outcome = self._outcomes.expect(id)
        position = 0
        try:
            async with asyncio.timeout(timeout_s):
                with sending(command, id) as trace:
                    content = encode_command(command, id, self._source, trace)
                    if too_large := size_fault(content):
                        # The services do not search so large a message for its id. This sender
                        # could not match their refusal to the command.
                        return Refused("", "Invalid", too_large)
                    position = await self._publish(subject_of(command, ""), content)
                return await self._await_outcome(outcome, command, content, position)
        except Refused as refusal:
            return refusal
        except Denied as error:
            return self._refuse_denied(command, error)
        except ServerRefusal as error:
            return NoOutcome(f"{name} is not stored: {error}")
        except TimeoutError:
            return self._describe_silence(command, stored=position > 0)
        finally:
            self._outcomes.forget(id)

    async def _await_outcome(
        self,
        outcome: "asyncio.Future[A | Refused | NoOutcome]",
        command: Command,
        content: bytes,
        position: int,
    ) -> A | Refused | NoOutcome:
        """Return the outcome of a command whose content is stored at a position of the log."""
        return await outcome

    def _refuse_denied(self, command: Command, denial: Denied) -> Refused:
        """Return the refusal of a command that the server does not let the user send."""
        return Refused("", "Forbidden", f"permission denied for {denial.description}")

    def _describe_silence(self, command: Command, *, stored: bool) -> NoOutcome:
        """Return the error for a command without an outcome; see `no_outcome`."""
        return no_outcome(type(command).__name__, self._timeout_s, stored=stored)

    async def _publish(self, subject: str, content: bytes) -> int:
        """Publish a message until the server confirms that it is stored, and return its position.

        The id in the envelope makes repetitions harmless: the services do not process them again.
        """
        failures = 0
        while True:
            try:
                return await api.publish_event(
                    self._connection, subject, content, timeout_s=PUBLISH_S
                )
            except (InDoubt, Busy, Denied) as error:
                # A denial fails every pending request, including requests on other subjects.
                if isinstance(error, Denied) and self._is_about(error, subject):
                    raise
                failures += 1
                await asyncio.sleep(pause_s(failures, RETRY_S, RETRY_MAX_S, random.random()))

    @staticmethod
    def _is_about(denial: Denied, subject: str) -> bool:
        """Return whether the server has denied this subject; nats-py reports it in lower case."""
        return f'"{subject.lower()}"' in denial.description.lower()


def _find_id_refusal(id: str) -> Refused | None:
    """Return the refusal of an id that the services do not accept; None for a valid id."""
    if len(id) <= ID_MAX and id.isprintable():
        return None
    text = f"has {len(id)} characters; use at most {ID_MAX} that can be printed"
    return Refused("id", "Invalid", text)


def encode_command(
    command: Command, id: str, source: str, trace: Mapping[str, str] = MappingProxyType({})
) -> bytes:
    """Return a command as a CloudEvent in structured JSON.

    trace: the `traceparent` and `tracestate` of the command, if it has them.
    """
    return wrap(
        command,
        id=id,
        source=source,
        time=datetime.now(UTC),
        traceparent=trace.get("traceparent"),
        tracestate=trace.get("tracestate"),
    ).encode()
