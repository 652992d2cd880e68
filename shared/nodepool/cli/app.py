"""The `nodepool` command as a whole: its subcommands, its help, and how it reports errors."""

from collections.abc import Sequence

import click

from nodepool.cli import INTERRUPTED
from nodepool.cli.commands.api_resources import api_resources, api_versions
from nodepool.cli.commands.apply import apply, create, replace
from nodepool.cli.commands.completion import complete, completion
from nodepool.cli.commands.delete import delete
from nodepool.cli.commands.describe import describe
from nodepool.cli.commands.diff import diff
from nodepool.cli.commands.edit import edit
from nodepool.cli.commands.events import events
from nodepool.cli.commands.explain import explain
from nodepool.cli.commands.fleet import fleet
from nodepool.cli.commands.get import get
from nodepool.cli.commands.label import annotate, label
from nodepool.cli.commands.patch import patch
from nodepool.cli.commands.preempt import preempt
from nodepool.cli.commands.rollout import rollout
from nodepool.cli.commands.scale import scale
from nodepool.cli.commands.setup import register, set_
from nodepool.cli.commands.system import up, version
from nodepool.cli.commands.wait import wait
from nodepool.cli.errors import DONE, USAGE, report
from nodepool.cli.hints import about_flag, about_verb
from nodepool.cli.output import print_error, print_note
from nodepool.cli.settings import Group, common_options, from_environment

EPILOG = """\b
The options above may stand anywhere on the line, also after the command. A DURATION is written as
90s, 5m or 1h30m. Types of objects: nodepools (np), nodes (no), quotas, capacity.
Exit codes: 0 done, 1 refused or not found, 2 usage, 3 timeout, 4 no server, 130 Ctrl-C.
"""


@click.group(
    cls=Group,
    name="nodepool",
    epilog=EPILOG,
    params=list(common_options(hidden=False)),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.pass_context
def cli(context: click.Context) -> None:
    """Declare, watch and change pools of GPU machines."""
    if context.obj is None:
        context.obj = from_environment()


for command in (
    up,
    apply,
    create,
    replace,
    edit,
    patch,
    label,
    annotate,
    get,
    describe,
    scale,
    delete,
    events,
    wait,
    rollout,
    diff,
    explain,
    api_resources,
    api_versions,
    preempt,
    set_,
    register,
    fleet,
    completion,
    complete,
    version,
):
    cli.add_command(command)


def run(args: Sequence[str]) -> int:
    """Runs one command line and returns its exit code; an error is printed as one line."""
    try:
        return int(cli.main(args, prog_name="nodepool", standalone_mode=False) or DONE)
    except click.Abort:
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        print_note(error.format_message())
        return USAGE
    except click.ClickException as error:
        print_error(_usage(error))
        return USAGE
    except Exception as error:
        return report(error)


def _usage(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "nodepool"
    hint = _hint(error)
    message = error.message if hint else error.format_message()
    return f"{message.rstrip('.')}{': ' if hint else ''}{hint} (see {path} --help)"


def _hint(error: click.ClickException) -> str:
    """What to use instead of a verb or flag that does not exist; empty where that is unknown."""
    match error:
        case click.NoSuchCommand(
            command_name=name, ctx=click.Context(command=click.Group() as own)
        ):
            return about_verb(name, own.commands)
        case click.NoSuchOption(option_name=name, ctx=click.Context(command=command)):
            return about_flag(name, (flag for option in command.params for flag in option.opts))
    return ""
