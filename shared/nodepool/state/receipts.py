"""The outcomes of the latest commands, so that a repeated command is not processed again."""

from dataclasses import dataclass

from immutables import Map

from nodepool.contract.events import CommandAccepted, CommandRefused, RefusalReason, Result
from nodepool.contract.keys import PoolPath
from nodepool.contract.messages import Command, PoolFields
from nodepool.contract.outcomes import CommandOutcome
from nodepool.state.queue import Queue

RECEIPTS_MAX = 20_000
"""How many commands are remembered for each service; the oldest is forgotten first."""
AGAIN: frozenset[RefusalReason] = frozenset(("TooManyRequests", "InternalError"))
"""The reasons of refusals that may not apply if the same command is sent again."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """The outcome of a command without its identity: the result, or why it was refused."""

    result: Result | None = None
    generation: int | None = None
    reason: RefusalReason | None = None
    field: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Receipts:
    """Receipts by identity, name and id of the command, at most `RECEIPTS_MAX` of them.

    Senders choose the ids, so commands of two organisations may have the same id.
    """

    known: Map[str, Receipt] = Map()
    order: Queue[str] = Queue()

    def outcome_of(self, command: Command, id: str) -> CommandOutcome | None:
        """Return the outcome of a command that was processed before; None for a new command."""
        return self.outcome_at(command.path, type(command).__name__, id)

    def outcome_at(self, path: PoolPath, name: str, id: str) -> CommandOutcome | None:
        """Return the outcome by identity, name and id of a command; None for a new command."""
        receipt = self.known.get(_key(path, name, id))
        if receipt is None:
            return None
        org, cluster, pool = path
        identity = PoolFields(org=org, cluster=cluster, pool=pool)
        if receipt.result is not None:
            return CommandAccepted(
                **identity, command=name, result=receipt.result, generation=receipt.generation
            )
        assert receipt.reason is not None, f"the receipt of {id} has no reason"
        return CommandRefused(
            **identity,
            command=name,
            reason=receipt.reason,
            field=receipt.field,
            message=receipt.message,
        )

    def put(self, id: str, outcome: CommandOutcome) -> "Receipts":
        """Return the receipts with this outcome; the first of two for the same id stays.

        A dry run leaves no receipt. Nor does a refusal that may not hold for another attempt: if
        such a command is sent again, it is processed again.
        """
        match outcome:
            case CommandAccepted(dry_run=False):
                receipt = Receipt(outcome.result, outcome.generation)
            case CommandRefused(reason=reason) if reason not in AGAIN:
                receipt = Receipt(reason=reason, field=outcome.field, message=outcome.message)
            case _:
                return self
        key = _key(outcome.path, outcome.command, id)
        if key in self.known:
            return self
        known, order = self.known.set(key, receipt), self.order.put(key)
        if len(order) > RECEIPTS_MAX:
            oldest = next(iter(order))
            known, order = known.delete(oldest), order.drop(oldest)
        return Receipts(known, order)


def _key(path: PoolPath, command: str, id: str) -> str:
    # Only the id may contain blanks, because tokens of a subject cannot. The id comes last, so no
    # two commands share a key.
    return " ".join((*path, command, id))
