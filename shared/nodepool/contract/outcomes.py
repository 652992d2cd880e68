"""The two outcomes of a command, made from the command itself."""

from nodepool.contract.events import CommandAccepted, CommandRefused, RefusalReason, Result
from nodepool.contract.messages import Command, path_fields

CommandOutcome = CommandAccepted | CommandRefused


def accepted(
    command: Command, result: Result, generation: int | None = None, *, dry_run: bool = False
) -> CommandAccepted:
    """The outcome of a command that was taken; `generation` is the NodePool's, where it has one."""
    return CommandAccepted(
        **path_fields(command),
        command=type(command).__name__,
        result=result,
        generation=generation,
        dry_run=dry_run,
    )


def refused(
    command: Command, field: str, message: str, reason: RefusalReason = "Invalid"
) -> CommandRefused:
    """The outcome of a command that changed nothing; `field` is what to mend."""
    return CommandRefused(
        **path_fields(command),
        command=type(command).__name__,
        reason=reason,
        field=field,
        message=message,
    )
