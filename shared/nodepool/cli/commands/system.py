"""`nodepool up` and `version`: the program itself."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nodepool.cli.errors import CliError
from nodepool.cli.formats import Format
from nodepool.cli.options import format_option
from nodepool.cli.output import print_note, print_text
from nodepool.cli.settings import Command, Settings, console_port, port
from nodepool.contract.services import PROCESSES

if TYPE_CHECKING:
    from nodepool.client.admin import Versions
    from nodepool.host.settings import Settings as Services

PATH = click.Path(path_type=Path)


def _address(context: click.Context, option: click.Parameter, text: str) -> str:
    """Return an address to listen on; raise a usage error for anything else."""
    from ipaddress import ip_address

    host = text.removeprefix("[").removesuffix("]")
    try:
        return str(ip_address(host))
    except ValueError:
        if re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", host):
            return host
    fault = f"--listen: {text!r} is not the name or IP address of an interface"
    raise click.UsageError(f"{fault}; NODEPOOL_NATS_PORT sets the port")


def _store(archive: str) -> str:
    """Return the place of the archive; raise a usage error if it cannot be used."""
    if not archive:
        return ""
    from importlib.util import find_spec

    from nodepool.archive.storage.errors import StoreError
    from nodepool.archive.storage.store import Store

    if find_spec("pyarrow") is None:
        fix = "pip install 'nodepool[archive]'"
        raise click.UsageError(f"--archive needs the package pyarrow: {fix}")
    try:
        Store(archive)
    except StoreError as error:
        raise click.UsageError(f"--archive: {error}") from None
    return archive if "://" in archive else str(Path(archive).absolute())


def _read_services() -> "Services":
    """Return the settings of the services; raise a usage error if one of them is invalid.

    Each service reads these settings too, and would exit at each start.
    """
    from nodepool.host.settings import SettingsError, read

    try:
        services = read(os.environ)
    except SettingsError as error:
        raise click.UsageError(str(error)) from None
    if services.replicas > 1:
        raise click.UsageError(f"NODEPOOL_REPLICAS is {services.replicas}; one server keeps 1 copy")
    return services


def _check_console(context: click.Context, option: click.Parameter, is_on: bool) -> bool:
    """Return whether the console is asked for; raise a usage error if its packages are missing."""
    from importlib.util import find_spec

    if is_on and any(find_spec(name) is None for name in ("starlette", "jinja2", "uvicorn")):
        fix = "pip install 'nodepool[console]'"
        raise click.UsageError(f"--console needs the packages starlette, jinja2 and uvicorn: {fix}")
    return is_on


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
@click.option(
    "--processes",
    type=click.Choice([str(count) for count in PROCESSES]),
    default="2",
    envvar="NODEPOOL_PROCESSES",
    show_envvar=True,
    show_default=True,
    help="In how many processes the services run: fewer take less memory.",
)
@click.option(
    "--listen",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    callback=_address,
    help="The address to listen on, 0.0.0.0 for all; with TLS if others can reach it.",
)
@click.option(
    "--archive",
    metavar="URL",
    default="",
    envvar="NODEPOOL_ARCHIVE",
    show_envvar=True,
    help="Archive the log there as well: in a folder, or in a bucket such as s3://bucket/folder.",
)
@click.option(
    "--inventory",
    type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
    envvar="NODEPOOL_INVENTORY",
    show_envvar=True,
    metavar="FILE",
    help="The inventory of real machines: run the service for them as well.",
)
@click.option(
    "--console",
    is_flag=True,
    callback=_check_console,
    help="Serve the console in the browser, on this machine only, and print a link to sign in.",
)
@click.pass_obj
def up(
    settings: Settings,
    /,
    data_dir: Path,
    examples: Path | None,
    once: bool,
    processes: str,
    listen: str,
    **beside: Any,
) -> int:
    """Run the whole control plane on this machine, until Ctrl-C."""
    from nodepool.cli.tables import pools_table
    from nodepool.local.errors import UpError
    from nodepool.local.pages import PORT
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
        processes=int(processes),
        listen=listen,
        protection=_read_services().protection,
        archive=_store(beside["archive"]),
        inventory=beside["inventory"],
        console=beside["console"],
        page_port=console_port(PORT) if beside["console"] else PORT,
    )
    try:
        return run(options)
    except UpError as error:
        raise CliError(str(error)) from None


@click.command(cls=Command)
@click.option("--client", is_flag=True, help="Print the version of the command only.")
@format_option(but=("wide", "name", "custom-columns"))
@click.pass_obj
def version(settings: Settings, client: bool, form: Format) -> None:
    """Print the versions of the command, of the NATS server and of the services at work.

    The version of the command is printed even if no server can be reached.
    """
    from nodepool.host.version import version_of

    own = version_of()
    versions, note = (None, "") if client else _versions(settings)
    if form.is_table:
        print_text("\n".join([f"nodepool {own}", *_version_lines(versions)]))
    else:
        _print_version_document(form, own, versions)
    # If the output cannot be written, for example to a closed pipe, only that error is reported.
    if note:
        sys.stdout.flush()
        print_note(note)


def _print_version_document(form: Format, own: str, versions: "Versions | None") -> None:
    document: dict[str, object] = {"clientVersion": {"version": own}}
    if versions is not None:
        document["serverVersion"] = {"version": versions.server}
    if versions is not None and versions.services is not None:
        document["serviceVersions"] = versions.services
    form.print_whole([document], single=True)


def _versions(settings: Settings) -> "tuple[Versions | None, str]":
    """Return the versions that the server shows, and a note of what is missing."""
    from nodepool.client.errors import Refused, Unreachable

    try:
        versions = settings.versions()
    except (Unreachable, Refused) as error:
        return None, f"only the version of the command is known: {error}"
    if versions.services is None:
        note = "the versions of the services are not known: the server does not list them"
        return versions, note
    if not versions.services:
        return versions, "no service is at work; 'nodepool doctor' says more"
    return versions, ""


def _version_lines(versions: "Versions | None") -> Iterator[str]:
    """Return a line for the server, and a line for each version of services."""
    if versions is None:
        return
    yield f"NATS server {versions.server}"
    services = versions.services or {}
    for number in sorted({each for numbers in services.values() for each in numbers}):
        names = [name for name, numbers in services.items() if number in numbers]
        yield f"services {number}: {', '.join(names)}"
