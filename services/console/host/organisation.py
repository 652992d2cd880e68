"""The page of an organisation: its quotas, its clusters, and its users."""

from console.host.rendering import Page
from console.host.visit import Visit
from console.view import commands
from console.view.organisation import list_quotas
from nodepool.contract.roles import SENDERS


async def show_organisation(visit: Visit) -> Page:
    """Show what the organisation may have, has and waits for, who belongs to it, and their roles.

    Who belonged to it at a moment of the past is not in the log.
    """
    account = visit.account
    fleet, role = account.mirror.fleet(), account.identity.role
    values = {
        "org": fleet.org,
        "quotas": list_quotas(fleet),
        "zones": sorted(fleet.zones.items()),
        "allowed": sorted(each.__name__ for each, roles in SENDERS.items() if role in roles),
        "users": await account.roster.users() if visit.shown is None else None,
        "fault": account.roster.fault,
        "roster_shell": commands.nodepool("users"),
        "shells": visit.of_moment(commands.nodepool("get", "quotas")),
    }
    return Page("organisation.html", "Organisation", "organisation", values)
