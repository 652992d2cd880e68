"""The `nodepool` command as a whole: its subcommands, its help, and how it reports errors."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

import click

from nodepool.cli import INTERRUPTED
from nodepool.cli.errors import DONE, USAGE, report
from nodepool.cli.hints import about_flag, about_verb
from nodepool.cli.output import print_error, print_note
from nodepool.cli.settings import Group, common_options, from_environment

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

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
    "audit": ("audit", "audit"),
    "auth": ("auth", "auth"),
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
    "log": ("log", "log"),
    "machine": ("machine", "machine"),
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
    "usage": ("usage", "usage"),
    "users": ("users", "users"),
    "version": ("system", "version"),
    "wait": ("wait", "wait"),
}
"""The module and the function name of each command, by its verb."""
SUMMARIES = {
    "ack": "Give preempted Nodes back now: each is drained at once, not two minutes after"
    " its warning.",
    "annotate": "Set and remove annotations of NodePools: KEY=VALUE sets one, KEY- removes it.",
    "api-resources": "List the types of objects.",
    "api-versions": "List the versions of the format of manifests.",
    "apply": "Create or change the NodePools in manifests.",
    "audit": "List the commands of the organisation, oldest first: who sent which, and its"
    " outcome.",
    "auth": "Make identities, give and take keys, and say who may do what.",
    "backup": "Store the log, as it is now, in a new folder.",
    "completion": "Print a shell completion script.",
    "cordon": "Cordon Nodes: nothing new is scheduled there.",
    "create": "Create NodePools that do not exist yet, from manifests or from flags.",
    "dead": "Show what could not be processed, and send commands again.",
    "delete": "Delete NodePools and all their Nodes, or unset quotas.",
    "demo": "Set up a cluster with quotas, machines and NodePools, once.",
    "describe": "Show objects in detail.",
    "diff": "Show what applying manifests would change, or what changed between two moments.",
    "doctor": "Say what is wrong with the set-up, and what to do about it.",
    "drain": "Cordon Nodes and end what runs there; wait until that is done.",
    "edit": "Edit NodePools in an editor, one after the other.",
    "events": "List the events of NodePools and Nodes, oldest first.",
    "explain": "Document the fields of a NodePool: types, limits, defaults, meaning.",
    "find": "Find capacity.",
    "fleet": "Operate the simulated data centre.",
    "get": "List objects.",
    "label": "Set and remove labels of NodePools: KEY=VALUE sets one, KEY- removes it.",
    "lock": "Lock Nodes for a Slurm job, as its prolog does, and wait until they are.",
    "log": "Check the archive of the log, ask the log in SQL, and see what of it may go.",
    "machine": "Operate real machines: their power, maintenance and verification.",
    "patch": "Change some fields of NodePools.",
    "preempt": "Preempt spot Nodes; each is removed within seven minutes.",
    "reboot": "Reboot Nodes in their NodePool, each once nothing runs there that blocks it.",
    "reclaim": "Hold machines back, preempting spot Nodes.",
    "register": "Register clusters.",
    "replace": "Change the NodePools in manifests; one that does not exist is an error.",
    "restore": "Make the log from a backup or an archive, on a server without one.",
    "return": "Give reclaimed machines back.",
    "rollout": "Follow NodePools on their way to their targets.",
    "run": "Run a program of this machine as a Pod of a NodePool.",
    "scale": "Set how many Nodes NodePools should have.",
    "set": "Set quotas.",
    "skip": "Show the next input of a service, and pass over it if its position is given.",
    "uncordon": "Take back a cordon, a drain or a reboot that waits.",
    "unlock": "Release the lock of a Slurm job on Nodes, as its epilog does.",
    "up": "Run the whole control plane on this machine, until Ctrl-C.",
    "usage": "Say for how many hours Nodes were used, idle, lost or not billable.",
    "users": "List the users of the organisation with their roles, and agents with their clusters.",
    "version": "Print the versions of the command, of the NATS server and of the services at work.",
    "wait": "Wait until NodePools (np) or Nodes (no) have a condition or a value, exist or"
    " are gone.",
}
"""The first sentence of the help of each command: a list of the commands loads no command."""


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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of the commands."""
        listed = [click.Command(verb, help=text) for verb, text in SUMMARIES.items()]
        click.Group(commands=listed).format_commands(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Return the verbs and the options that begin with what is typed."""
        from click.shell_completion import CompletionItem

        verbs = [CompletionItem(verb) for verb in SUMMARIES if verb.startswith(incomplete)]
        return verbs + click.Command.shell_complete(self, ctx, incomplete)


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
