"""`nodepool set` and `nodepool register`: sets quotas, and registers clusters."""

from typing import TYPE_CHECKING

import click

from nodepool.cli.options import COUNT
from nodepool.cli.output import print_text
from nodepool.cli.quotas import zone_of
from nodepool.cli.settings import Group, Settings

if TYPE_CHECKING:
    from nodepool.client import Client


@click.group("set", cls=Group)
def set_() -> None:
    """Set quotas."""


@set_.command()
@click.argument("instance_type")
@click.argument("limit", type=COUNT, metavar="N")
@click.option("--zone", metavar="ZONE", help="The zone.  [default: the zone of the cluster]")
@click.pass_obj
def quota(settings: Settings, instance_type: str, limit: int, zone: str | None) -> int:
    """Set how many Nodes of a type the organisation may have in a zone."""

    async def work(client: "Client") -> None:
        quota_zone = await zone_of(client, zone or "")
        outcome = await client.quotas.set(quota_zone, instance_type, limit)
        print_text(f"quota/{quota_zone}.{instance_type} {outcome.result}")

    return settings.run(work)


@click.group(cls=Group)
def register() -> None:
    """Register clusters."""


@register.command()
@click.argument("name")
@click.option("--zone", required=True, metavar="ZONE", help="Its zone, which can never be changed.")
@click.option(
    "--kubernetes-uid",
    default="",
    metavar="UID",
    help="The uid of its namespace kube-system; from then on its Nodes are those of Kubernetes.",
)
@click.option(
    "--replaces",
    default="",
    metavar="UID",
    help="The uid that is registered, of a cluster that is gone for good.",
)
@click.pass_obj
def cluster(settings: Settings, name: str, zone: str, kubernetes_uid: str, replaces: str) -> int:
    """Register a cluster of the organisation."""

    async def work(client: "Client") -> None:
        is_connected = bool(kubernetes_uid)
        outcome = await client.clusters.register(
            name, zone, kubernetes=is_connected, uid=kubernetes_uid, replaces=replaces
        )
        print_text(f"cluster/{name} {outcome.result}")

    return settings.run(work)
