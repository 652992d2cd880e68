"""`nodepool machine`: shows real machines, and operates them."""

from typing import TYPE_CHECKING, Literal

import click

from nodepool.cli.commands.describe import describe_objects
from nodepool.cli.commands.get import SELECTOR_HELP, get
from nodepool.cli.commands.pods import machine_of
from nodepool.cli.formats import Format
from nodepool.cli.names import MACHINE
from nodepool.cli.options import format_option, no_headers_option
from nodepool.cli.output import print_text
from nodepool.cli.settings import Command, Group, Settings
from nodepool.cli.view import View
from nodepool.contract.grammar import TEXT_LIMIT

if TYPE_CHECKING:
    from nodepool.client import Client

Place = tuple[str, str]
"""The zone and the name of a machine."""


def _real_machine_of(context: click.Context, option: click.Parameter, value: str) -> Place:
    """Return the zone and the name of a machine; raise a usage error if it cannot be a real one.

    Without a service for real machines, nobody would refuse the command: no outcome would come.
    """
    from nodepool.contract.catalog import provider_fault, zone_fault
    from nodepool.contract.grammar import dns1123_label
    from nodepool.contract.real_machines import PROVIDER

    zone, machine = machine_of(context, option, value)
    if fault := zone_fault(zone) or provider_fault(zone, PROVIDER) or dns1123_label(machine):
        raise click.UsageError(f"{option.make_metavar(context)}: {fault}")
    return zone, machine


_MAINTENANCE = {"in": "in maintenance", "out": "out of maintenance"}
_MACHINE = click.argument("machine", callback=_real_machine_of, metavar="ZONE/MACHINE")


@click.group(cls=Group)
def machine() -> None:
    """Operate real machines: their power, maintenance and verification."""


@machine.command("list", cls=Command)
@format_option()
@click.option("-l", "--selector", default="", metavar="SELECTOR", help=SELECTOR_HELP)
@no_headers_option()
@click.pass_context
def list_(context: click.Context, form: Format, selector: str, no_headers: bool) -> int:
    """List machines with their state, as `get machines` does; `-o wide` shows their power."""
    chosen = {"form": form, "selector": selector, "no_headers": no_headers}
    code: int = context.invoke(get, what=(MACHINE.plural,), **chosen)
    return code


@machine.command(cls=Command)
@click.argument("machine", callback=machine_of, metavar="ZONE/MACHINE")
@click.pass_obj
def describe(settings: Settings, machine: Place) -> int:
    """Show a machine in detail: its problems, and its last entries."""
    view = View(MACHINE, ["/".join(machine)])
    return settings.run(lambda client: describe_objects(client, [view], 0))


@machine.command()
@click.argument("power", type=click.Choice(["on", "off", "reset"]))
@_MACHINE
@click.pass_obj
def power(settings: Settings, power: Literal["on", "off", "reset"], machine: Place) -> int:
    """Power a machine on or off, or reset it; only out of service or in maintenance."""

    async def work(client: "Client") -> None:
        await client.machines.set_power(*machine, power)
        print_text(f"machine/{machine[1]} power {power} requested")

    return settings.run(work)


@machine.command()
@click.argument("way", type=click.Choice(["in", "out"]))
@_MACHINE
@click.option("--reason", default="", metavar="TEXT", help="Why, for other operators.")
@click.pass_obj
def maintain(settings: Settings, way: str, machine: Place, reason: str) -> int:
    """Take a machine into maintenance, so that nothing else touches it, or out of it."""
    if len(reason) > TEXT_LIMIT:
        raise click.UsageError(f"--reason: has {len(reason)} characters; at most {TEXT_LIMIT}")
    if reason and way == "out":
        raise click.UsageError("--reason: has no meaning with out; leave it out")

    async def work(client: "Client") -> None:
        outcome = await client.machines.maintain(*machine, maintenance=way == "in", reason=reason)
        done = "unchanged" if outcome.result == "unchanged" else _MAINTENANCE[way]
        print_text(f"machine/{machine[1]} {done}")

    return settings.run(work)


@machine.command()
@_MACHINE
@click.pass_obj
def verify(settings: Settings, machine: Place) -> int:
    """Read all parts of a machine; a machine out of service comes back if they are sound."""

    async def work(client: "Client") -> None:
        await client.machines.verify(*machine)
        print_text(f"machine/{machine[1]} verification requested")

    return settings.run(work)
