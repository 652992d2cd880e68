"""On account of which command things happen: what an output to the clock is to name as its origin.

A `Wake` comes from no command, yet what it sets in motion does: the machine that has booted was
assigned for somebody's wish. This is kept beside the state, not in it, for no decision depends on
it: after a restart the thread of what was under way is simply not known.
"""

from typing import NamedTuple

from nodepool.contract.messages import Message, OfMachine, OfPool

THREADS_MAX = 20_000
"""How many things are remembered; the one not heard of for longest is forgotten first."""


class Thread(NamedTuple):
    """The command that began it, by id, and the span of the message heard last about it."""

    correlationid: str | None = None
    traceparent: str | None = None


class Threads:
    """The thread of each machine and NodePool that was heard of lately."""

    def __init__(self) -> None:
        self._known: dict[str, Thread] = {}

    def note(self, message: Message, thread: Thread) -> None:
        """Remembers on whose account a NodePool, and a Node of it, was spoken of."""
        if thread.correlationid is None or not isinstance(message, OfPool):
            return
        node = getattr(message, "node", "")
        for key in (message.key, *((f"{getattr(message, 'zone', '')}/{node}",) if node else ())):
            self._known.pop(key, None)
            self._known[key] = thread
        while len(self._known) > THREADS_MAX:
            del self._known[next(iter(self._known))]

    def of(self, message: Message) -> Thread:
        """On whose account this is to be said: its machine's, its NodePool's, or nobody's."""
        match message:
            case OfMachine(machine_key=key) | OfPool(key=key):
                return self._known.get(key, Thread())
        return Thread()
