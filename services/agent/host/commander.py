"""Sends commands on the bus, one at a time for each object, and keeps their outcomes."""

import asyncio
from dataclasses import dataclass, replace
from typing import Final

from agent.actions import Attempt, Send
from agent.host.log import LogReader
from agent.host.model import BusModel
from agent.host.work import Key, Work
from agent.pools.objects import WantedPool
from agent.reading import version_number
from nodepool.client.accepted import Accepted, is_outdated
from nodepool.client.errors import NoOutcome, Refused
from nodepool.client.mirror import FAULTS
from nodepool.client.sender import Sender
from nodepool.contract.events import CommandAccepted
from nodepool.host.logs import Logger
from nodepool.nats.wire.waiting import cancel

SHOWN_S: Final = 2.0
"""After this time, a Node of the read model counts as showing the change by a command."""
CAUGHT_UP_S: Final = 10.0
"""After this time, a NodePool of the read model counts as showing what a command has changed
outside its spec."""
IN_FLIGHT_MAX: Final = 64
"""The most commands that may wait for their outcomes at one time."""
INFINITY: Final = float("inf")
_PASSING: Final = frozenset({"TooManyRequests", "InternalError", "Unavailable"})
"""The reasons for refusals after which the same command may be sent again."""


@dataclass(slots=True)
class _Sent:
    """A command that was sent.

    accepted: what the log said about the NodePool when the outcome arrived.
    version: the version of the Node in the read model when the command was sent.
    shown_at: when the command counts as shown, regardless of the version; a change to the spec of a
      NodePool counts as shown only by its generation.
    """

    attempt: Attempt
    accepted: Accepted | None = None
    version: str = ""
    shown_at: float = INFINITY


class Commander:
    """Sends commands, and keeps the outcome of the last command about each object.

    log: what the log says.
    """

    def __init__(self, model: BusModel, log: LogReader, work: Work, lines: Logger) -> None:
        self.log = log
        self._model, self._work, self._lines = model, work, lines
        self._sent: dict[Key, _Sent] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._sender: Sender[CommandAccepted] | None = None

    def begin(self, sender: Sender[CommandAccepted]) -> None:
        """Send commands with this sender from now on."""
        self._sender = sender

    async def end(self) -> None:
        """Cancel the commands in flight, and forget all commands: the ids make that harmless."""
        self._sender = None
        await cancel(*self._tasks)
        self._sent.clear()

    def attempt(self, key: Key, now: float, deleted: int = 0) -> Attempt | None:
        """Return the last command about an object; None if no command was sent.

        deleted: the position in the log of the last deletion of a NodePool of this name; 0 if the
          log has no deletion, or was not asked.
        """
        sent = self._sent.get(key)
        if sent is None:
            return None
        is_shown = bool(sent.attempt.outcome) and self._shows(key, sent, now, deleted)
        if not is_shown and now < sent.shown_at < INFINITY:
            # Set the time on each call: any other wake-up of the key discards the time set before.
            self._work.wake_at(key, sent.shown_at)
        return replace(sent.attempt, is_shown=is_shown)

    def forget(self, key: Key) -> None:
        """Forget an object that neither side has any more."""
        sent = self._sent.get(key)
        if sent is not None and sent.attempt.outcome:
            del self._sent[key]

    def send(self, key: Key, action: Send) -> None:
        """Send a command; `attempt` returns its outcome."""
        sent = self._sent.get(key)
        if self._sender is None or (sent is not None and not sent.attempt.outcome):
            return
        node = self._model.nodes.get(key.name) if key.kind == "Node" else None
        self._sent[key] = _Sent(
            Attempt(action.id, command=action.command), version=node.version if node else ""
        )
        task = asyncio.create_task(self._run(key, action, self._sender))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, key: Key, action: Send, sender: Sender[CommandAccepted]) -> None:
        async with self._turns:
            outcome = await sender.send(action.command, id=action.id)
        sent = self._sent[key]
        if isinstance(outcome, NoOutcome) or (
            isinstance(outcome, Refused) and outcome.reason in _PASSING
        ):
            self._retry_command(key, str(outcome))
            return
        try:
            if key.kind == "NodePool":
                sent.accepted = await self.log.accepted(key.name)
        except FAULTS as error:
            self._retry_command(key, f"no outcome of {action.id}: {error}")
            return
        now = asyncio.get_running_loop().time()
        match outcome:
            case Refused(field=field, reason=reason, message=message):
                sent.attempt = replace(
                    sent.attempt, outcome="refused", reason=reason, field=field, message=message
                )
                sent.shown_at = now
            case CommandAccepted(result=result):
                sent.attempt = replace(sent.attempt, outcome="accepted")
                wait_s = SHOWN_S if key.kind == "Node" else CAUGHT_UP_S
                sent.shown_at = now if result == "unchanged" else now + wait_s
        self._work.wake(key)

    def _retry_command(self, key: Key, cause: str) -> None:
        """Forget a command without an outcome, and let it be sent again after a pause."""
        del self._sent[key]
        pause_s = self._work.retry(key)
        self._lines.warning(
            "no outcome", kind=key.kind, name=key.name, cause=cause, again_in_s=round(pause_s)
        )

    def _shows(self, key: Key, sent: _Sent, now: float, deleted: int) -> bool:
        if key.kind == "Node":
            node = self._model.nodes.get(key.name)
            return now >= sent.shown_at or node is None or node.version != sent.version
        wanted = self._model.pools.get(key.name)
        return shows_pool(wanted, sent.accepted, deleted, has_waited=now >= sent.shown_at)


def shows_pool(
    wanted: WantedPool | None, accepted: Accepted | None, deleted: int, *, has_waited: bool
) -> bool:
    """Return whether the read model shows the outcome of a command about a NodePool.

    wanted: the NodePool of the read model; None if the read model lacks the NodePool.
    accepted: the state of the NodePool in the log when the outcome arrived.
    deleted: the position of the last deletion of a NodePool of this name; 0 if there is none.
    has_waited: whether enough time has passed for changes that do not raise the generation.
    """
    if wanted is None:
        # A missing NodePool was not created yet, or was deleted since.
        if accepted is None or accepted.state != "stored":
            return True
        return deleted > accepted.position
    if is_outdated({"metadata": _metadata(wanted)}, accepted):
        return False
    # A change to labels does not change the generation.
    is_behind = accepted is not None and version_number(wanted.version) < accepted.position
    return not is_behind or has_waited


def _metadata(pool: WantedPool) -> dict[str, object]:
    metadata: dict[str, object] = {
        "uid": pool.uid,
        "generation": pool.generation,
        "resourceVersion": pool.version,
    }
    return metadata | ({"deletionTimestamp": ""} if pool.deleting else {})
