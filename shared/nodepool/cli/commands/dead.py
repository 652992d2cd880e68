"""`nodepool dead`: lists messages that could not be processed, and sends commands again."""

from dataclasses import replace as with_changes
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from nodepool.cli import dead_letters, tables
from nodepool.cli.errors import DONE, REFUSED, CliError
from nodepool.cli.formats import Format
from nodepool.cli.missing import note_trimmed
from nodepool.cli.options import format_option, no_headers_option, seconds
from nodepool.cli.output import print_error, print_lines, print_note, print_text
from nodepool.cli.settings import Group, Settings
from nodepool.contract.services import EVERY

if TYPE_CHECKING:
    from nodepool.client import Client
    from nodepool.client.dead_letters import DeadLetter

SINCE_MAX_S = 1e9
POSITION = click.IntRange(min=1)
SERVICE = click.option(
    "--service", type=click.Choice(EVERY), help="Only those of this service.", metavar="SERVICE"
)


@click.group(cls=Group)
def dead() -> None:
    """Show what could not be processed, and send commands again."""


@dead.command("list")
@SERVICE
@click.option("--since", default="", metavar="DURATION", help="How far to look back.")
@format_option()
@no_headers_option()
@click.pass_obj
def list_(
    settings: Settings, service: str | None, since: str, form: Format, no_headers: bool
) -> int:
    """List dead letters, newest first; 500 of them at most."""
    back_s = min(seconds("--since", since), SINCE_MAX_S) if since else None
    now = datetime.now(UTC)
    after = None if back_s is None else now - timedelta(seconds=back_s)

    async def work(client: "Client") -> None:
        letters, older = await client.admin.dead_letters.list(service or "", after)
        _print(letters, form, now, headers=not no_headers)
        if older:
            print_note(f"{older} older ones are not shown; choose with --service and --since")
        note_trimmed(client)

    return settings.run(work)


def _print(letters: "list[DeadLetter]", form: Format, now: datetime, *, headers: bool) -> None:
    documents = [dead_letters.document(letter) for letter in letters]
    if form.is_whole:
        form.print_whole(documents, single=False)
    elif form.form == "name":
        for letter in letters:
            print_text(f"deadletter/{letter.position}")
    elif not letters:
        print_note("No dead letters found")
    elif form.columns:
        table = form.custom_table() if headers else form.custom_table().without_header()
        print_lines(table.lines(map(form.custom_cells, documents)))
    else:
        wide = form.form == "wide"
        table = tables.new_table(dead_letters.WIDE if wide else dead_letters.HEADINGS)
        table = table if headers else table.without_header()
        rows = (dead_letters.cells(letter, now, wide=wide) for letter in letters)
        print_lines(table.lines(rows))


@dead.command()
@click.argument("letter", type=POSITION, metavar="POSITION")
@format_option(but=("wide", "custom-columns"))
@click.pass_obj
def show(settings: Settings, letter: int, form: Format) -> int:
    """Show all of one dead letter: the input, how its sender was refused, and what helps."""

    async def work(client: "Client") -> None:
        parked = await client.admin.dead_letters.get(letter)
        refusal = await client.admin.dead_letters.refusal_of(parked)
        if form.form == "name":
            print_text(f"deadletter/{letter}")
        elif form.is_whole:
            form.print_whole([dead_letters.document(parked, refusal)], single=True)
        else:
            replay = await client.admin.replays.examine(parked)
            now = datetime.now(UTC)
            print_text(dead_letters.description(parked, refusal, replay, now))

    return settings.run(work)


@dead.command()
@click.argument("letters", nargs=-1, type=POSITION, metavar="[POSITION]...")
@click.option("--all", "every", is_flag=True, help="All dead letters of --service.")
@SERVICE
@click.option("--dry-run", is_flag=True, help="Say what would be sent, and send nothing.")
@click.option("--force", is_flag=True, help="Send also what would undo a later change.")
@click.pass_obj
def replay(
    settings: Settings,
    letters: tuple[int, ...],
    every: bool,
    service: str | None,
    dry_run: bool,
    force: bool,
) -> int:
    """Send commands again that a service failed on, under the ids that they had.

    A command that was done since is not done again, so that to repeat a replay does no harm. What
    is invalid stays so. An event or a wake is not sent: a service computes what it lacks itself.
    """
    if every != (service is not None) or every == bool(letters):
        raise click.UsageError("name the positions of dead letters, or --all with --service")

    async def work(client: "Client") -> int:
        if every:
            newest, older = await client.admin.dead_letters.list(service or "")
            parked = [letter for letter in reversed(newest) if letter.is_command]
            if older:
                print_note(f"{older} older ones are left out; name their positions")
        else:
            newest = parked = [
                await client.admin.dead_letters.get(position) for position in letters
            ]
        codes = [await _replay(client, each, dry_run=dry_run, force=force) for each in parked]
        if len(newest) > len(parked):
            print_note(f"{len(newest) - len(parked)} that are no commands are left out")
        if not parked:
            print_note("No commands found among the dead letters")
        return max(codes, default=DONE)

    return settings.run(work)


async def _replay(client: "Client", letter: "DeadLetter", *, dry_run: bool, force: bool) -> int:
    """Replay one dead letter, print the result and return the exit code."""
    replay = await client.admin.replays.examine(letter)
    if replay.is_stale and force:
        replay = with_changes(replay, why_not="")
    label = f"deadletter/{letter.position}"
    if replay.done_at:
        print_text(f"{label} unchanged: {replay.why_not}")
        return DONE
    if replay.why_not:
        advice = "; --force sends it all the same" if replay.is_stale else ""
        print_error(f"{label} is not replayed: {replay.why_not}{advice}")
        return REFUSED
    assert letter.address is not None, "a command has an address"
    if dry_run:
        print_text(f"{label} replayed as {letter.address.name} {replay.id!a} (dry run)")
        return DONE
    position, outcome = await client.admin.replays.send(letter, replay)
    if not outcome:
        raise CliError(f"{label} is replayed at position {position}, and has no outcome yet")
    print_text(f"{label} replayed at position {position}: {outcome}")
    return DONE if outcome.startswith("accepted") else REFUSED
