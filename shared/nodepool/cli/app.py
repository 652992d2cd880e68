"""The `nodepool` command as a whole: its subcommands, its help, and how it reports errors."""

from collections.abc import Sequence
from importlib import import_module

import click

from nodepool.cli import INTERRUPTED
from nodepool.cli.errors import DONE, USAGE, report
from nodepool.cli.hints import about_flag, about_verb
from nodepool.cli.output import print_error, print_note
from nodepool.cli.settings import Group, common_options, from_environment

EPILOG = """\b
The options above may stand anywhere on the line, also after the command. A DURATION is written as
90s, 5m or 1h30m. 'nodepool api-resources' lists the types of objects and their short names.
Exit codes: 0 done, 1 refused or not found, 2 usage, 3 timeout, 4 no server, 130 Ctrl-C.
"""


COMMANDS = {
    "__complete": ("completion", "complete"),
    "ack": ("preempt", "ack"),
    "annotate": ("label", "annotate"),
    "api-resources": ("api_resources", "api_resources"),
    "api-versions": ("api_resources", "api_versions"),
    "apply": ("apply", "apply"),
    "backup": ("backup", "backup"),
    "completion": ("completion", "completion"),
    "cordon": ("nodes", "cordon"),
    "create": ("apply", "create"),
    "dead": ("dead", "dead"),
    "delete": ("delete", "delete"),
    "demo": ("demo", "demo"),
    "describe": ("describe", "describe"),
    "diff": ("diff", "diff"),
    "doctor": ("doctor", "doctor"),
    "drain": ("nodes", "drain"),
    "edit": ("edit", "edit"),
    "events": ("events", "events"),
    "explain": ("explain", "explain"),
    "find": ("find", "find"),
    "fleet": ("fleet", "fleet"),
    "get": ("get", "get"),
    "label": ("label", "label"),
    "lock": ("lock", "lock"),
    "patch": ("patch", "patch"),
    "preempt": ("preempt", "preempt"),
    "reboot": ("nodes", "reboot"),
    "reclaim": ("reclaim", "reclaim"),
    "register": ("setup", "register"),
    "replace": ("apply", "replace"),
    "restore": ("backup", "restore"),
    "return": ("reclaim", "return_"),
    "rollout": ("rollout", "rollout"),
    "run": ("run", "run"),
    "scale": ("scale", "scale"),
    "set": ("setup", "set_"),
    "skip": ("skip", "skip"),
    "uncordon": ("nodes", "uncordon"),
    "unlock": ("lock", "unlock"),
    "up": ("system", "up"),
    "version": ("system", "version"),
    "wait": ("wait", "wait"),
}
"""The module and the function name of each command, by its verb."""


class Verbs(Group):
    """The commands; each command is imported only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in alphabetical order; `__complete` is hidden."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a verb; None for an unknown verb."""
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name]
        command = getattr(import_module(f"nodepool.cli.commands.{module}"), name)
        assert isinstance(command, click.Command)
        return command


@click.group(
    cls=Verbs,
    name="nodepool",
    epilog=EPILOG,
    invoke_without_command=True,
    no_args_is_help=True,
    params=list(common_options(hidden=False)),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--version", "shows_version", is_flag=True, help="As 'nodepool version'.")
@click.pass_context
def cli(context: click.Context, shows_version: bool) -> None:
    """Declare, watch and change pools of GPU machines."""
    if context.invoked_subcommand is None and not shows_version:
        context.fail("Missing command.")
    # The doctor checks the settings itself.
    if context.obj is None and context.invoked_subcommand != "doctor":
        context.obj = from_environment()
    if shows_version:
        command = Verbs.get_command(cli, context, "version")
        assert command is not None
        with command.make_context("version", [], context) as own:
            context.exit(command.invoke(own) or DONE)


def run(args: Sequence[str]) -> int:
    """Run one command line and return its exit code; print an error as one line."""
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
    is_unknown = isinstance(error, click.NoSuchCommand | click.NoSuchOption)
    # click's own suggestions often do not resemble what the user wrote.
    message = error.message if is_unknown else error.format_message()
    if not message.endswith("..."):
        message = message.removesuffix(".")
    return f"{message}{_hint(error)} (see {path} --help)"


def _hint(error: click.ClickException) -> str:
    """Return the end of the message for an unknown verb or flag; empty if no hint is known."""
    match error:
        case click.NoSuchCommand(
            command_name=name, ctx=click.Context(command=click.Group() as own) as context
        ):
            return about_verb(name, own.list_commands(context))
        case click.NoSuchOption(option_name=name, ctx=click.Context(command=command)):
            return about_flag(name, (flag for option in command.params for flag in option.opts))
    return ""
