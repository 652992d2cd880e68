"""The page of a NodePool or a Node that has left: when, and what happened before."""

from typing import Final, Literal

from console.host.rendering import Page
from console.host.visit import Missing, Visit
from nodepool.client import ClientError

DELETED: Final = "CWNodePoolDeleted"


async def show_gone(visit: Visit, kind: Literal["NodePool", "Node"]) -> Page:
    """Show what happened to an object that is not there; raise Missing if nothing did."""
    place, history = visit.place, visit.account.history
    if place.cluster not in visit.account.mirror.clusters:
        raise Missing(f"You have no cluster {place.cluster}.")
    happenings = await history.events_of(kind, place)
    try:
        departure = await history.departure_of(place) if kind == "Node" else None
    except ClientError:
        departure = None
    past = sorted(happenings, key=lambda each: -each.position)
    events = visit.to("events", cluster=place.cluster, kind=kind, name=place.name)
    if not past and departure is None:
        text = f"There is no {kind} {place.name} in cluster {place.cluster}, and the last day has"
        raise Missing(f"{text} no events of one.", events)
    if kind == "NodePool":
        departure = next((each for each in past if each.reason == DELETED), None)
    values = {
        "kind": kind,
        "place": place,
        "left": departure,
        "history": past,
        "events": events,
    }
    return Page("gone.html", f"{place.name} · {kind}", "nodepools", values)
