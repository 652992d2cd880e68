"""Commands to the simulated data centre: machines that are added, break, are repaired, run Pods."""

from typing import TYPE_CHECKING

import click

from nodepool.cli.output import say
from nodepool.cli.settings import Group, Settings

if TYPE_CHECKING:
    from nodepool.client import Client, Fault

BATCH = 500
"""The most machines that one command adds."""
FAULTS = click.Choice(["boot", "registration", "silence"])


@click.group(cls=Group)
def fleet() -> None:
    """Play the data centre: add machines, break them, run Pods."""


def _machine(_: click.Context, option: click.Parameter, value: str) -> tuple[str, str]:
    zone, slash, machine = value.partition("/")
    if not (zone and slash and machine):
        raise click.UsageError(f"{option.make_metavar(_)}: {value!r} must be ZONE/MACHINE")
    return zone, machine


def _labels(_: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for value in values:
        key, sign, text = value.partition("=")
        if not (key and sign):
            raise click.UsageError(f"--{option.name}: {value!r} must be KEY=VALUE")
        found[key] = text
    return found


@fleet.command()
@click.argument("zone")
@click.argument("instance_type", metavar="TYPE")
@click.argument("count", type=click.IntRange(1, 1_000_000))
@click.option("--boot-seconds", type=click.FloatRange(0, 86_400), default=0, metavar="S")
@click.option("--label", multiple=True, callback=_labels, metavar="KEY=VALUE", help="Topology.")
@click.pass_obj
def add(
    settings: Settings,
    zone: str,
    instance_type: str,
    count: int,
    boot_seconds: float,
    label: dict[str, str],
) -> int:
    """Put machines of a type into a zone."""

    async def work(client: "Client") -> None:
        for begin in range(0, count, BATCH):
            some = min(BATCH, count - begin)
            await client.add_machines(
                zone, instance_type, some, boot_seconds=boot_seconds, labels=label
            )
        say(f"zone/{zone} {count} {instance_type} added")

    return settings.run(work)


@fleet.command("break")
@click.argument("machine", callback=_machine, metavar="ZONE/MACHINE")
@click.option("--fault", type=FAULTS, required=True, help="How its next boot fails.")
@click.option("--times", type=click.IntRange(0, 1_000_000), default=1, show_default=True)
@click.option("--cause", default="", help="What it reports as the reason.")
@click.pass_obj
def break_(
    settings: Settings, machine: tuple[str, str], fault: "Fault", times: int, cause: str
) -> int:
    """Make a machine fail the next times that it boots."""

    async def work(client: "Client") -> None:
        await client.break_machine(*machine, fault, times=times, cause=cause)
        say(f"machine/{machine[1]} broken")

    return settings.run(work)


@fleet.command()
@click.argument("machine", callback=_machine, metavar="ZONE/MACHINE")
@click.pass_obj
def repair(settings: Settings, machine: tuple[str, str]) -> int:
    """Return a machine from triage to the free ones."""

    async def work(client: "Client") -> None:
        await client.repair_machine(*machine)
        say(f"machine/{machine[1]} repaired")

    return settings.run(work)


@fleet.command("run-pod")
@click.argument("machine", callback=_machine, metavar="ZONE/MACHINE")
@click.argument("name")
@click.option("--daemon-set", is_flag=True, help="It belongs to a DaemonSet.")
@click.option("--interruptable", "interruption", flag_value="interruptable", help="Evict at once.")
@click.option("--graceful", "interruption", flag_value="graceful", help="Evict and await its end.")
@click.option("--grace", type=click.IntRange(0, 86_400), default=30, show_default=True, metavar="S")
@click.pass_obj
def run_pod(
    settings: Settings,
    machine: tuple[str, str],
    name: str,
    daemon_set: bool,
    interruption: str | None,
    grace: int,
) -> int:
    """Start a Pod on a Node; it blocks unless interruptable."""

    async def work(client: "Client") -> None:
        from nodepool.contract.model import Pod, PodClass

        pod = Pod(
            name=name,
            daemon_set=daemon_set,
            interruption=PodClass(interruption or "blocking"),
            grace_s=grace,
        )
        await client.run_pod(*machine, pod)
        say(f"pod/{name} created")

    return settings.run(work)


@fleet.command("stop-pod")
@click.argument("machine", callback=_machine, metavar="ZONE/MACHINE")
@click.argument("name")
@click.pass_obj
def stop_pod(settings: Settings, machine: tuple[str, str], name: str) -> int:
    """End a Pod on a Node, as finished work does."""

    async def work(client: "Client") -> None:
        await client.stop_pod(*machine, name)
        say(f"pod/{name} deleted")

    return settings.run(work)
