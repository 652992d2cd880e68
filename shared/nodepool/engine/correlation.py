"""Which command led to the current work, for the outputs of inputs that do not name a command.

A `Wake` does not follow from a command, but its outputs do: a machine that has booted was assigned
because of some command. An agent that reports a Node does not know that command. Decisions do not
depend on correlations, so correlations are not part of the state. After a restart, work that began
before the restart has no correlation.
"""

from itertools import islice
from typing import NamedTuple

from nodepool.contract.actors import WITHHELD, is_foreign, withhold_actor
from nodepool.contract.decode import Unreadable
from nodepool.contract.keys import NodeKey, node_key
from nodepool.contract.messages import Command, Envelope, M, Message, OfMachine, OfNode, OfPool

CORRELATIONS_MAX = 20_000
"""The least number of NodePools and machines that are remembered."""
DROPPED = 1_000
"""The number of NodePools and machines that are dropped together, once as many are too many.

The least recently mentioned are dropped first. Dropping each alone would be slow: to find the first
key of a dict, Python passes the gaps that removed keys leave.
"""


class Correlation(NamedTuple):
    """The id and the sender of the command that began the work, and the last span of the work.

    actor: the sender, see `contract.actors`; None for a command of the operator.
    """

    correlationid: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    actor: str | None = None

    def about(self, org: str) -> "Correlation":
        """Return what to name in an output about an organisation: nothing that another one chose.

        The sender of a command chooses its id and its trace, and could tell others something so.
        """
        if self.actor is None:
            return self
        if is_foreign(self.actor, org):
            return Correlation(WITHHELD, actor=WITHHELD)
        return self._replace(actor=withhold_actor(self.actor, org))


def correlation_of(envelope: Envelope[M] | Unreadable) -> Correlation:
    """Return the correlation of a message; an unreadable event has no correlation."""
    return Correlation(
        envelope.correlationid, envelope.traceparent, envelope.tracestate, envelope.actor
    )


def _format_command_key(node: NodeKey) -> str:
    """Return the key of a Node that a command named, which is no key of a NodePool."""
    return f"node {node}"


class Correlations:
    """The correlation of each machine and NodePool that was mentioned recently."""

    def __init__(self) -> None:
        self._known: dict[str, Correlation] = {}

    def note(self, message: Message, correlation: Correlation) -> None:
        """Remember the correlation of the NodePool, and of the Node, that a message is about."""
        if correlation.correlationid is None or not isinstance(message, OfPool):
            return
        self._put(message.key, correlation)
        if isinstance(message, OfNode):
            self._put(message.machine_key, correlation)
            if (commanded := _format_command_key(message.node_key)) in self._known:
                self._put(commanded, correlation)
        self._forget()

    def note_command(self, command: Command, correlation: Correlation) -> None:
        """Remember the correlation of the outputs of a command.

        An output about the Node that a command names follows from that command, whatever else was
        asked for its NodePool. Any other output about a Node follows from what was asked last.
        """
        self.note(command, correlation)
        node = getattr(command, "node", "")
        if node and correlation.correlationid is not None:
            org, cluster, _ = command.path
            self._put(_format_command_key(node_key(org, cluster, node)), correlation)

    def _forget(self) -> None:
        if len(self._known) > CORRELATIONS_MAX + DROPPED:
            for key in tuple(islice(self._known, DROPPED)):
                del self._known[key]

    def _put(self, key: str, correlation: Correlation) -> None:
        self._known.pop(key, None)
        self._known[key] = correlation

    def of(self, message: Message) -> Correlation:
        """Return the correlation of the machine or NodePool of a message; empty if unknown."""
        match message:
            case OfNode(key=key, node_key=node):
                known = self._known
                return known.get(_format_command_key(node)) or known.get(key) or Correlation()
            case OfMachine(machine_key=key) | OfPool(key=key):
                return self._known.get(key, Correlation())
        return Correlation()

    def of_cause(self, envelope: Envelope[M] | Unreadable) -> Correlation:
        """Return the correlation of the outputs of an input.

        An input without a correlation id gets the correlation of the Node, machine or NodePool that
        it is about, but keeps a trace of its own. Its own actor is the agent that has observed it,
        which has begun nothing. For a Node, the machine is looked up first: its NodePool may have
        been mentioned for another reason since.
        """
        own = correlation_of(envelope)
        if own.correlationid is not None or not isinstance(envelope, Envelope):
            return own
        message = envelope.data
        known = self.of(message)
        if isinstance(message, OfNode):
            known = self._known.get(message.machine_key, known)
        if own.traceparent is None:
            return known
        return own._replace(correlationid=known.correlationid, actor=known.actor)
