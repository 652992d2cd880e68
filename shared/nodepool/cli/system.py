"""Commands about the control plane as a program: starting it, its version, shell completion."""

import os
from pathlib import Path

import click

from nodepool.cli.faults import Refusal
from nodepool.cli.output import say
from nodepool.cli.settings import Command, Settings, port

PATH = click.Path(path_type=Path)


@click.command(cls=Command)
@click.option(
    "--data-dir", type=PATH, default=".nodepool", envvar="NODEPOOL_DATA_DIR", show_default=True,
    metavar="DIR", help="Where the log is kept.",
)  # fmt: skip
@click.option("--examples", type=PATH, metavar="DIR", help="Manifests to apply once it runs.")
@click.option("--once", is_flag=True, help="Stop as soon as everything runs.")
@click.pass_obj
def up(settings: Settings, data_dir: Path, examples: Path | None, once: bool) -> int:
    """Run the whole control plane on this machine."""
    from nodepool.cli.tables import pools_table
    from nodepool.local.errors import UpError
    from nodepool.local.up import Options, run

    options = Options(
        data_dir=data_dir,
        port=port(),
        binary=os.environ.get("NODEPOOL_NATS_SERVER"),
        examples=examples,
        org=settings.org,
        cluster=settings.cluster,
        show=pools_table,
        once=once,
    )
    try:
        return run(options)
    except UpError as error:
        raise Refusal(str(error)) from None


@click.command(cls=Command)
def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    say(f"nodepool {installed('nodepool')}")


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a completion script for your shell to eval."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, f"click completes in {shell}"
    root = context.find_root().command
    say(kind(root, {}, "nodepool", "_NODEPOOL_COMPLETE").source())
