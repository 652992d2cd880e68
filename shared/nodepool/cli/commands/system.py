"""`nodepool up` and `version`: the program itself."""

import os
from pathlib import Path

import click

from nodepool.cli.errors import CliError
from nodepool.cli.formats import Format
from nodepool.cli.options import format_option
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
    from nodepool.host.settings import SettingsError, read
    from nodepool.local.errors import UpError
    from nodepool.local.up import Options, run

    try:
        # Each service reads them too, and would end at once, again and again.
        copies = read(os.environ).replicas
    except SettingsError as error:
        raise click.UsageError(str(error)) from None
    if copies > 1:
        raise click.UsageError(f"NODEPOOL_REPLICAS is {copies}; one server keeps 1 copy")
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
@click.option("--client", is_flag=True, help="Print no version of the server; it has none.")
@format_option(but=("wide", "name", "custom-columns"))
def version(client: bool, form: Format) -> None:
    """Print the version of the command."""
    from importlib.metadata import version as installed

    number = installed("nodepool")
    if form.is_table:
        print_text(f"nodepool {number}")
    else:
        form.print_whole([{"clientVersion": {"version": number}}], single=True)
