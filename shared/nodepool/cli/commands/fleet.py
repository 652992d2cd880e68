"""`nodepool fleet`: commands to the simulated data centre."""

from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from nodepool.cli.commands.pods import create_pod, delete_pod, machine_of, run_pod, stop_pod
from nodepool.cli.options import COUNT
from nodepool.cli.output import print_text
from nodepool.cli.settings import Group, Settings

if TYPE_CHECKING:
    from nodepool.client import Client, MachineFault

FAULTS = click.Choice(
    [
        *("boot", "registration", "silence", "hang", "verification"),
        *("xid", "nvlink", "gpu-lost", "disk", "kernel-deadlock", "link-flap", "kubelet"),
        *("wipe", "wipe-hang"),
    ]
)
FAULT_HELP = (
    "How it fails: it does not boot, is refused at registration, never reports its boot, joins"
    " and reports nothing more (a Node hangs at once), or does not pass its verification; the"
    " others come while it is a Node, at once where it is one; the last two make its next wipe"
    " fail, at its end or after an hour."
)


class Simulated(TypedDict):
    """How simulated machines fail and recover; the fields are named like the options."""

    verify_seconds: float
    failures_per_day: float
    repair_seconds: float
    wipe_seconds: float
    seed: int


@click.group(cls=Group)
def fleet() -> None:
    """Operate the simulated data centre."""


def _labels(_: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    labels = {}
    for value in values:
        key, sign, text = value.partition("=")
        if not (key and sign):
            raise click.UsageError(f"--{option.name}: {value!r} must be KEY=VALUE")
        labels[key] = text
    return labels


@fleet.command()
@click.argument("zone")
@click.argument("instance_type", metavar="TYPE")
@click.argument("count", type=click.IntRange(1, 1_000_000), required=False)
@click.option(
    "--racks",
    type=click.IntRange(1, 50_000),
    metavar="N",
    help="Instead of COUNT: so many racks, each with an NVLink domain of its own.",
)
@click.option(
    "--boot-seconds",
    type=click.FloatRange(0, 86_400),
    default=0,
    show_default=True,
    metavar="S",
    help="How long each machine takes to boot.",
)
@click.option(
    "--verify-seconds",
    type=click.FloatRange(0, 3_600),
    default=0,
    metavar="S",
    help="How long each is verified after a boot.",
)
@click.option(
    "--failures-per-day",
    type=click.FloatRange(0, 1_000),
    default=0,
    metavar="N",
    help="How often each fails while it is a Node, on average.",
)
@click.option(
    "--repair-seconds",
    type=click.FloatRange(0, 2_592_000),
    default=0,
    metavar="S",
    help="How long each is in triage until it is free again; 0 for ever.",
)
@click.option(
    "--wipe-seconds",
    type=click.FloatRange(0, 3_600),
    default=0,
    metavar="S",
    help="How long each is wiped after a stay in a NodePool until it is free again.",
)
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, metavar="N", hidden=True)
@click.option(
    "--label",
    multiple=True,
    callback=_labels,
    metavar="KEY=VALUE",
    help="A topology label of the machines; may be repeated.",
)
@click.pass_obj
def add(
    settings: Settings,
    zone: str,
    instance_type: str,
    count: int | None,
    racks: int | None,
    boot_seconds: float,
    label: dict[str, str],
    **simulated: Unpack[Simulated],
) -> int:
    """Add machines of a type to a zone."""
    if (count is None) is (racks is None):
        raise click.UsageError("COUNT: write either COUNT or --racks N")

    async def work(client: "Client") -> None:
        from nodepool.contract.catalog import RACK_SIZE, rack_size
        from nodepool.contract.commands import MACHINES_MAX

        size = rack_size(instance_type) or RACK_SIZE
        total = count if count is not None else (racks or 0) * size
        most = MACHINES_MAX if racks is None else MACHINES_MAX // size * size
        for added in range(0, total, most):
            await client.fleet.add_machines(
                zone,
                instance_type,
                min(most, total - added),
                boot_seconds=boot_seconds,
                labels=label,
                in_racks=racks is not None,
                **simulated,
            )
        print_text(f"zone/{zone} {total} {instance_type} added")

    return settings.run(work)


@fleet.command("break")
@click.argument("machine", callback=machine_of, metavar="ZONE/MACHINE")
@click.option("--fault", type=FAULTS, required=True, help=FAULT_HELP)
@click.option(
    "--times",
    type=COUNT,
    default=1,
    show_default=True,
    metavar="N",
    help="How often it fails; 0 ends it.",
)
@click.option("--cause", default="", metavar="TEXT", help="The reason that it reports.")
@click.pass_obj
def break_(
    settings: Settings, machine: tuple[str, str], fault: "MachineFault", times: int, cause: str
) -> int:
    """Make a machine fail: a Node at once where it can, else when it boots next."""

    async def work(client: "Client") -> None:
        await client.fleet.break_machine(*machine, fault, times=times, cause=cause)
        print_text(f"machine/{machine[1]} broken")

    return settings.run(work)


@fleet.command()
@click.argument("machine", callback=machine_of, metavar="ZONE/MACHINE")
@click.pass_obj
def repair(settings: Settings, machine: tuple[str, str]) -> int:
    """Return a machine from triage to the free machines."""

    async def work(client: "Client") -> None:
        await client.fleet.repair_machine(*machine)
        print_text(f"machine/{machine[1]} repaired")

    return settings.run(work)


for command in (run_pod, stop_pod, create_pod, delete_pod):
    fleet.add_command(command)
