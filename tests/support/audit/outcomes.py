"""Rules for outcomes: each command has one, however often it arrives.

One that was refused for a reason that may pass is processed again when it is sent again.
"""

from nodepool.contract.events import CommandAccepted, CommandRefused
from nodepool.contract.messages import Message
from nodepool.state.receipts import AGAIN
from support.audit.facts import Facts, Origin, Violation

PASSING = tuple(f"refused, {reason}" for reason in sorted(AGAIN))


def check(facts: Facts, message: Message, origin: Origin) -> None:
    """Checks an outcome against those that the same command had before."""
    if not isinstance(message, CommandAccepted | CommandRefused):
        return
    path = "/".join(message.path)
    outcome, identity = _text(message), (path, message.command, origin.command)
    earlier = facts.outcomes.get(identity, outcome)
    if earlier.startswith(PASSING):
        earlier = outcome
    facts.outcomes[identity] = outcome
    if earlier != outcome:
        raise Violation(
            f"command {origin.command} to {path} has two outcomes: {earlier}, then {outcome}"
        )


def _text(message: CommandAccepted | CommandRefused) -> str:
    if isinstance(message, CommandAccepted):
        return f"accepted, {message.result}, generation {message.generation}"
    return f"refused, {message.reason} {message.field}"
