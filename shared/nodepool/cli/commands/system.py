"""`nodepool up`, `version` and `completion`: the program itself."""

import os
from pathlib import Path

import click

from nodepool.cli.errors import CliError
from nodepool.cli.output import print_text
from nodepool.cli.settings import Command, Settings, port

PATH = click.Path(path_type=Path)


@click.command(cls=Command)
@click.option(
    "--data-dir",
    type=PATH,
    default=".nodepool",
    envvar="NODEPOOL_DATA_DIR",
    show_envvar=True,
    show_default=True,
    metavar="DIR",
    help="Where to keep the log, and the log files of the services.",
)
@click.option("--examples", type=PATH, metavar="DIR", help="A folder of manifests to apply.")
@click.option("--once", is_flag=True, help="Stop once everything is running.")
@click.pass_obj
def up(settings: Settings, data_dir: Path, examples: Path | None, once: bool) -> int:
    """Run the whole control plane on this machine, until Ctrl-C."""
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
        raise CliError(str(error)) from None


@click.command(cls=Command)
def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    print_text(f"nodepool {installed('nodepool')}")


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a shell completion script.

    To load it, run: eval "$(nodepool completion bash)"
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, f"click has no completion for {shell}"
    root = context.find_root().command
    print_text(kind(root, {}, "nodepool", "_NODEPOOL_COMPLETE").source())
