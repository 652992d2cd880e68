"""Commands about the control plane as a program: starting it, its version, shell completion."""

import click

from nodepool.cli.output import say
from nodepool.cli.settings import Command


@click.command(cls=Command)
@click.option("--data-dir", default=".nodepool", show_default=True, help="Where the log is kept.")
@click.option("--examples", metavar="DIR", help="Manifests to apply once it runs.")
@click.option("--once", is_flag=True, help="Stop as soon as everything runs.")
def up(data_dir: str, examples: str | None, once: bool) -> int:
    """Run the whole control plane on this machine."""
    from nodepool.up import run

    return run(data_dir=data_dir, examples=examples, once=once) or 0


@click.command(cls=Command)
def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    say(f"nodepool {installed('nodepool')}")


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that completes commands; eval it in your shell's start-up file."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, f"click completes in {shell}"
    root = context.find_root().command
    say(kind(root, {}, "nodepool", "_NODEPOOL_COMPLETE").source())
