"""What became of the last commands, by id, so that one sent again is not done again."""

from dataclasses import dataclass
from typing import Literal

from immutables import Map

from nodepool.contract.events import CommandAccepted, CommandRefused
from nodepool.contract.messages import Command, Message, path_fields
from nodepool.state.persistent import Queue

RECEIPTS_MAX = 20_000
"""How many commands a service knows by id; the oldest is forgotten first."""
Result = Literal["created", "configured", "unchanged", "deleted", "done"]
Reason = Literal["Invalid", "Forbidden", "NotFound", "Conflict", "InternalError"]


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a command: its result, or why it was refused."""

    result: Result | None = None
    generation: int | None = None
    reason: Reason | None = None
    field: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Receipts:
    """Receipts by what was asked of whom and the command's id, at most `RECEIPTS_MAX` of them.

    Ids are the senders' own: that of one organisation must not answer for another's.
    """

    known: Map[str, Receipt] = Map()
    order: Queue = Queue()

    def again(self, command: Command, id: str) -> CommandAccepted | CommandRefused | None:
        """The outcome to repeat for a command that was sent before; None for a new one."""
        name, of = type(command).__name__, path_fields(command)
        receipt = self.known.get(_key(command, name, id))
        if receipt is None:
            return None
        if receipt.result is not None:
            return CommandAccepted(
                **of, command=name, result=receipt.result, generation=receipt.generation
            )
        assert receipt.reason is not None, f"the receipt of {id} says nothing"
        return CommandRefused(
            **of,
            command=name,
            reason=receipt.reason,
            field=receipt.field,
            message=receipt.message,
        )

    def put(self, id: str, outcome: CommandAccepted | CommandRefused) -> "Receipts":
        """The receipts with this outcome; the first of two for the same id stays.

        What changed nothing by intent or by our own fault may be asked again: a dry run, and a
        refusal for an internal error.
        """
        match outcome:
            case CommandAccepted(dry_run=False):
                receipt = Receipt(outcome.result, outcome.generation)
            case CommandRefused(reason=reason) if reason != "InternalError":
                receipt = Receipt(reason=reason, field=outcome.field, message=outcome.message)
            case _:
                return self
        key = _key(outcome, outcome.command, id)
        if key in self.known:
            return self
        known, order = self.known.set(key, receipt), self.order.put(key)
        if len(order) > RECEIPTS_MAX:
            oldest = next(iter(order))
            known, order = known.delete(oldest), order.drop(oldest)
        return Receipts(known, order)


def _key(message: Message, command: str, id: str) -> str:
    return "/".join((*message.path, command, id))
