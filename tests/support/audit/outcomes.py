"""Rules for outcomes: each command has one, however often it arrives."""

from nodepool.contract.events import CommandAccepted, CommandRefused
from nodepool.contract.messages import Message
from support.audit.facts import Facts, Origin, Violation


def check(facts: Facts, message: Message, origin: Origin) -> None:
    """Checks an outcome against those that the same command had before."""
    if not isinstance(message, CommandAccepted | CommandRefused):
        return
    path = "/".join(message.path)
    outcome = _text(message)
    earlier = facts.outcomes.setdefault((path, message.command, origin.command), outcome)
    if earlier != outcome:
        raise Violation(
            f"command {origin.command} to {path} has two outcomes: {earlier}, then {outcome}"
        )


def _text(message: CommandAccepted | CommandRefused) -> str:
    if isinstance(message, CommandAccepted):
        return f"accepted, {message.result}, generation {message.generation}"
    return f"refused, {message.reason} {message.field}"
