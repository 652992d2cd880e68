"""The command line itself: its commands, its common options, and what its errors look like."""

from collections.abc import Sequence

import click

from nodepool.cli import INTERRUPTED
from nodepool.cli.change import apply, delete, preempt, register, scale, set_
from nodepool.cli.faults import DONE, USAGE, failed
from nodepool.cli.fleet import fleet
from nodepool.cli.output import complain
from nodepool.cli.read import describe, events, get, wait
from nodepool.cli.settings import Group, common_options, from_environment
from nodepool.cli.system import completion, up, version

EPILOG = """\b
The options above may stand anywhere on the line. Types: nodepools (np), nodes (no), quotas,
capacity. Exit codes: 0 done, 1 refused or not found, 2 usage, 3 timeout, 4 no server, 130 Ctrl-C.
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
    """Node pools of GPU machines: declare, watch and change them."""
    if context.obj is None:
        context.obj = from_environment()


for command in (
    up,
    apply,
    get,
    describe,
    scale,
    delete,
    events,
    wait,
    preempt,
    set_,
    register,
    fleet,
    completion,
    version,
):
    cli.add_command(command)


def run(args: Sequence[str]) -> int:
    """Runs one command line and returns its exit code; every error is one line."""
    try:
        return int(cli.main(args, prog_name="nodepool", standalone_mode=False) or DONE)
    except click.Abort:
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return USAGE
    except click.ClickException as error:
        complain(_usage(error))
        return USAGE
    except Exception as error:
        return failed(error)


def _usage(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "nodepool"
    told = error.format_message().rstrip(".")
    return f"{told} (see {path} --help)"
