"""`nodepool run`: runs a program on this machine as a Pod of a NodePool."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Unpack
from uuid import uuid4

import click

from nodepool.cli.commands.pods import PodOptions, pod_of, pod_options
from nodepool.cli.output import print_error, print_note
from nodepool.cli.settings import Command, Settings

if TYPE_CHECKING:
    from nodepool.client import Client

NAME_MAX = 40
"""How many characters of a program's name are part of the name of its Pod."""


class RunOptions(PodOptions):
    """The values of the options of `run`."""

    pool: str
    name: str
    restart: bool
    command: tuple[str, ...]


@click.command(cls=Command, context_settings={"allow_interspersed_args": False})
@click.option("--pool", required=True, metavar="NAME", help="The NodePool whose Nodes it runs on.")
@click.option("--name", default="", metavar="NAME", help="The Pod's name; else one is made.")
@click.option(
    "--restart", is_flag=True, help="Start again on another Node when this one is taken away."
)
@click.option(
    "--blocking",
    "interruption",
    flag_value="blocking",
    help="A drain waits until it ends, but for that of a preemption.",
)
@pod_options
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND [ARG]...")
@click.pass_obj
def run(settings: Settings, **options: Unpack[RunOptions]) -> int:
    """Run a program of this machine as a Pod of a NodePool.

    It starts when the Pod has a Node. When that is drained, as a preempted one is two minutes after
    the warning, the program gets SIGTERM, and SIGKILL after its grace period. With --restart it
    is started again on the next Node, until it ends by itself; exit code 0 always is the end.

    Its output is untouched; what is said of its Pod goes to standard error. Ctrl-C asks the program
    to end, and kills it the second time. The Pod is deleted in every way out but SIGKILL, and the
    exit code is the program's.

    nodepool run --pool batch --gpus 1 --restart -- python train.py
    """
    if not options["command"]:
        raise click.UsageError("COMMAND: is required; write it after --")
    options["interruption"] = options["interruption"] or "graceful"
    return _ran(settings, options)


def _ran(settings: Settings, options: RunOptions) -> int:
    """Run the program to its end and return its exit code.

    If the program cannot be started, return the exit code of a shell in the same case.
    """
    from nodepool.local.process import NotStarted, executable

    pool, command = options["pool"], options["command"]
    pod = pod_of(options["name"] or _made_name(command[0]), options)

    async def work(client: "Client") -> int:
        from nodepool.cli.workload import Runner, Workload

        client.session.observe(
            lambda what: print_note(f"{what} is gone; the program goes on"),
            lambda what: print_note(f"{what} is back"),
        )
        return await Runner(client, Workload(pool, pod, command, options["restart"])).run()

    try:
        executable(command[0], os.environ)
        return settings.run(work)
    except NotStarted as error:
        print_error(str(error))
        return error.code


def _made_name(program: str) -> str:
    """Return a unique name for a Pod, which begins with the name of its program."""
    words = re.sub(r"[^a-z0-9]+", "-", Path(program).name.lower()).strip("-")[:NAME_MAX]
    return f"{words.strip('-') or 'run'}-{uuid4().hex[:5]}"
