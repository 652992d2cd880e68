"""The two outcomes of a command, made from the command itself."""

from nodepool.contract.events import CommandAccepted, CommandRefused, RefusalReason, Result
from nodepool.contract.messages import Command, path_fields

CommandOutcome = CommandAccepted | CommandRefused


def build_acceptance(
    command: Command, result: Result, generation: int | None = None, *, dry_run: bool = False
) -> CommandAccepted:
    """Return the outcome of an accepted command, with the `generation` of its NodePool, if any."""
    return CommandAccepted(
        **path_fields(command),
        command=type(command).__name__,
        result=result,
        generation=generation,
        dry_run=dry_run,
    )


def build_refusal(
    command: Command, field: str, message: str, reason: RefusalReason = "Invalid"
) -> CommandRefused:
    """Return the outcome of a command that changes nothing; `field` is the field to correct."""
    return CommandRefused(
        **path_fields(command),
        command=type(command).__name__,
        reason=reason,
        field=field,
        message=message,
    )
