"""Deleting quotas: selecting the quotas, and reporting on each quota."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nodepool.cli.errors import DONE, CliError, report
from nodepool.cli.missing import check_place
from nodepool.cli.names import QUOTA
from nodepool.cli.options import DryRun
from nodepool.cli.output import print_note

if TYPE_CHECKING:
    from nodepool.cli.sending import Reporting
    from nodepool.client import Client


async def zone_of(client: "Client", zone: str) -> str:
    """Return the zone itself, or the zone of the client's cluster if `zone` is empty."""
    own = zone or await client.clusters.zone()
    if own is None:
        raise CliError(
            f"--zone: cluster {client.org}/{client.cluster} is not registered; name a zone"
        )
    return own


async def delete_quotas(client: "Client", names: Sequence[str], zone: str, how: "Reporting") -> int:
    """Unset limits; without names, all limits of the organisation, or of one zone.

    Returns the exit code.
    """
    from nodepool.client import ClientError, Refused

    existing = {quota.key for quota in await client.quotas.list() if quota.document}
    if names:
        keys = [name if "." in name else f"{await zone_of(client, zone)}.{name}" for name in names]
    else:
        keys = sorted(key for key in existing if key.startswith(f"{zone}." if zone else ""))
        if not keys:
            await check_place(client, QUOTA)
            print_note("No resources found")
    code = DONE
    for key in keys:
        try:
            if how.output.dry_run is DryRun.NONE:
                await client.quotas.delete(*key.split(".", 1))
            elif key not in existing:
                raise Refused("", "NotFound", "no quota is set")
        except ClientError as error:
            is_missing = isinstance(error, Refused) and error.reason == "NotFound"
            if not (is_missing and how.ignore_missing):
                code = report(error, f'quota "{key}"')
            continue
        how.output.print_line(f"{QUOTA.full}/{key}", f'{QUOTA.full} "{key}" deleted')
    return code
