"""The verbs of `nodepool fleet` that start and end Pods."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypedDict, TypeVar, Unpack

import click

from nodepool.cli.output import print_text
from nodepool.cli.settings import Settings

if TYPE_CHECKING:
    from nodepool.client import Client
    from nodepool.contract.pods import Pod, Toleration

F = TypeVar("F", bound=Callable[..., object])
GRACE = click.IntRange(0, 86_400)
GPUS = click.IntRange(0, 1_024)


def machine_of(context: click.Context, option: click.Parameter, value: str) -> tuple[str, str]:
    """Return the zone and the name of a machine that is written `ZONE/MACHINE`."""
    zone, slash, machine = value.partition("/")
    if not (zone and slash and machine) or "/" in machine:
        raise click.UsageError(f"{option.make_metavar(context)}: {value!r} must be ZONE/MACHINE")
    return zone, machine


class PodOptions(TypedDict):
    """The values of the options of a Pod."""

    interruption: str | None
    grace: int
    gpus: int
    accelerators: int
    toleration: tuple[str, ...]


_OPTIONS = (
    click.option(
        "--interruptable",
        "interruption",
        flag_value="interruptable",
        help="A drain may end the Pod at once.",
    ),
    click.option(
        "--graceful",
        "interruption",
        flag_value="graceful",
        help="A drain may end the Pod after its grace period.",
    ),
    click.option(
        "--grace",
        type=GRACE,
        default=30,
        show_default=True,
        metavar="S",
        help="The grace period in seconds.",
    ),
    click.option(
        "--gpus", type=GPUS, default=0, metavar="N", help="The nvidia.com/gpu that it asks for."
    ),
    click.option(
        "--accelerators",
        type=GPUS,
        default=0,
        metavar="N",
        help="The sunk.coreweave.com/accelerator that it asks for.",
    ),
    click.option(
        "--toleration",
        multiple=True,
        metavar="KEY[=VALUE][:EFFECT]",
        help="A taint that it tolerates; '*' is every taint. May be repeated.",
    ),
)


def pod_options(command: F) -> F:
    """Add the options of a command that starts a Pod."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _toleration(text: str) -> "Toleration":
    from pydantic import ValidationError

    from nodepool.contract.pods import Toleration

    taint, _, effect = text.partition(":")
    key, sign, value = taint.partition("=")
    fields = {
        "key": "" if key == "*" else key,
        "operator": "Equal" if sign else "Exists",
        "value": value,
        "effect": effect,
    }
    try:
        return Toleration.model_validate(fields)
    except ValidationError:
        effects = "NoSchedule, PreferNoSchedule or NoExecute"
        raise click.UsageError(f"--toleration: {text!r} must end in {effects}") from None


def pod_of(name: str, options: PodOptions, *, daemon_set: bool = False) -> "Pod":
    """Return the Pod that the options describe; raise a usage error for invalid tolerations."""
    from nodepool.contract.pods import TOLERATIONS_MAX, Pod, PodClass

    if len(options["toleration"]) > TOLERATIONS_MAX:
        raise click.UsageError(f"--toleration: there may be at most {TOLERATIONS_MAX}")
    return Pod(
        name=name,
        daemon_set=daemon_set,
        interruption=PodClass(options["interruption"] or "blocking"),
        grace_s=options["grace"],
        gpus=options["gpus"],
        accelerators=options["accelerators"],
        tolerations=tuple(_toleration(text) for text in options["toleration"]),
    )


@click.command("run-pod")
@click.argument("machine", callback=machine_of, metavar="ZONE/MACHINE")
@click.argument("name")
@click.option("--daemon-set", is_flag=True, help="The Pod belongs to a DaemonSet.")
@pod_options
@click.pass_obj
def run_pod(
    settings: Settings,
    machine: tuple[str, str],
    name: str,
    daemon_set: bool,
    **options: Unpack[PodOptions],
) -> int:
    """Start a Pod on a Node; by default, a drain waits until it ends."""
    pod = pod_of(name, options, daemon_set=daemon_set)

    async def work(client: "Client") -> None:
        await client.fleet.run_pod(*machine, pod)
        print_text(f"pod/{name} created")

    return settings.run(work)


@click.command("stop-pod")
@click.argument("machine", callback=machine_of, metavar="ZONE/MACHINE")
@click.argument("name")
@click.pass_obj
def stop_pod(settings: Settings, machine: tuple[str, str], name: str) -> int:
    """End a Pod on a Node, as if its work were finished."""

    async def work(client: "Client") -> None:
        await client.fleet.stop_pod(*machine, name)
        print_text(f"pod/{name} deleted")

    return settings.run(work)


@click.command("create-pod")
@click.argument("pool")
@click.argument("name")
@pod_options
@click.pass_obj
def create_pod(settings: Settings, pool: str, name: str, **options: Unpack[PodOptions]) -> int:
    """Create a Pod that waits for a Node of a NodePool that has room for it."""
    pod = pod_of(name, options)

    async def work(client: "Client") -> None:
        await client.fleet.create_pod(pool, pod)
        print_text(f"pod/{name} created")

    return settings.run(work)


@click.command("delete-pod")
@click.argument("pool")
@click.argument("name")
@click.option("--grace", type=GRACE, metavar="S", help="The grace period, not the Pod's own.")
@click.pass_obj
def delete_pod(settings: Settings, pool: str, name: str, grace: int | None) -> int:
    """Delete a Pod of a NodePool; it ends after its grace period."""

    async def work(client: "Client") -> None:
        outcome = await client.fleet.delete_pod(pool, name, grace_s=grace)
        print_text(f"pod/{name} {outcome.result}")

    return settings.run(work)
