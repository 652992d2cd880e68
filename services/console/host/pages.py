"""The pages: from the mirror and the log to the values of the templates."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import yaml
from markupsafe import Markup

from console.host.gone import show_gone
from console.host.rendering import Page, make_cells, make_row
from console.host.visit import Missing, Visit
from console.view import commands
from console.view.capacity import (
    USUAL_COUNT,
    USUAL_TYPE,
    Selection,
    ask_without,
    read_found,
    read_selections,
)
from console.view.events import EventsAsked, list_events, read_events_asked
from console.view.model import Place, Pool
from console.view.moments import parse_position
from console.view.node import build_node_page, find_verbs
from console.view.node_table import build_table
from console.view.nodes import Cell
from console.view.pool import build_pool_page
from console.view.pools import GROUPINGS, SORTINGS, Line, list_pools, read_asked
from console.view.preemptions import build_preemptions
from console.view.standing import TITLES, Group
from console.view.timeline import build_timeline
from nodepool.client import ClientError
from nodepool.client.manifests import stored_document
from nodepool.client.stored import stored_in
from nodepool.contract.catalog import INSTANCE_TYPES
from nodepool.contract.commands import (
    ApplyNodePool,
    CordonNode,
    DeleteNodePool,
    DrainNode,
    PreemptNode,
    RebootNode,
    ScaleNodePool,
    UncordonNode,
)
from nodepool.contract.commands_spot import AcknowledgePreemption
from nodepool.contract.messages import Command

VERBS: Final[Mapping[str, type[Command]]] = {
    "cordon": CordonNode,
    "uncordon": UncordonNode,
    "drain": DrainNode,
    "reboot": RebootNode,
    "preempt": PreemptNode,
    "acknowledge": AcknowledgePreemption,
}
"""The actions on a Node, and the command of each."""


async def show_pools(visit: Visit) -> Page:
    """Show the list of NodePools."""
    account = visit.account
    found = list_pools(account.mirror.lines(), read_asked(visit.query))
    account.note_shown(line.place for each in found.sections for line in each.lines)
    title = f"({found.needs_person}) NodePools" if found.needs_person else "NodePools"
    values = {
        "list": found,
        "row": partial(_make_row, visit),
        "groups": list(Group),
        "titles": TITLES,
        "groupings": GROUPINGS,
        "sortings": SORTINGS,
        "may_create": visit.may(ApplyNodePool) and visit.is_live,
        "clusters": account.mirror.clusters,
        "register": commands.nodepool("register", "cluster", "NAME", "--zone", "ZONE"),
        "first": commands.nodepool(
            *("create", "nodepool", "first", "--instance-type", USUAL_TYPE, "--target", "2")
        ),
        "shell": visit.of_moment(commands.nodepool("get", "nodepools", "-A"))[0],
    }
    return Page("pools.html", title, "nodepools", values)


def _make_row(visit: Visit, line: Line) -> Markup:
    make = partial(make_row, line, visit.now, visit.to, may_change=visit.may_change)
    return visit.account.parts.make(line.place, line, make) if visit.is_frame else make()


def _make_cells(visit: Visit, has_names: bool, cells: Sequence[Cell]) -> Markup:
    make = partial(make_cells, cells, visit.to, has_names=has_names)
    key = cells[0].place, cells[0].word, has_names
    return visit.account.parts.make(key, cells, make) if visit.is_frame else make()


def find_pool(visit: Visit, place: Place) -> Pool:
    """Return a NodePool; raise Missing if there is no such NodePool."""
    pool = visit.account.mirror.pool(place)
    if pool is None:
        raise Missing(f"There is no NodePool {place.name} in cluster {place.cluster}.")
    return pool


async def _explain(visit: Visit, place: Place) -> Pool:
    """Return a NodePool that a page shows, with its explanation unless there is no answer.

    Without one, the page shows the message of the condition.
    """
    pool = find_pool(visit, place)
    visit.account.note_shown([place])
    if pool.explanation is None and (visit.is_live or visit.shown is not None):
        with suppress(ClientError):
            await visit.account.explain(place)
    return find_pool(visit, place)


async def show_pool(visit: Visit) -> Page:
    """Show a NodePool."""
    place, account = visit.place, visit.account
    if account.mirror.pool(place) is None:
        return await show_gone(visit, "NodePool")
    pool = await _explain(visit, place)
    happenings = await account.history.events_of("NodePool", place)
    shown = build_pool_page(pool, happenings, visit.query.get("by", ""))
    values = {
        "shown": shown,
        "part": partial(_make_cells, visit, shown.grid.has_names),
        "table": build_table(pool.members, visit.query) if shown.grid.by == "table" else None,
        "may_scale": visit.may(ScaleNodePool) and visit.is_live,
        "may_edit": visit.may(ApplyNodePool) and visit.is_live,
        "may_delete": visit.may(DeleteNodePool) and visit.is_live,
        "shells": visit.of_moment(*commands.list_show_commands(place)),
    }
    return Page("pool.html", f"{place.name} · NodePool", "nodepools", values)


async def show_yaml(visit: Visit) -> Page:
    """Show the manifest of a NodePool, as a user can apply it, and its status."""
    place = visit.place
    pool = find_pool(visit, place)
    stored = stored_in(pool.document, visit.account.identity.org, place.cluster)
    manifest = stored_document(stored) if stored is not None else pool.document
    values = {
        "place": place,
        "manifest": to_yaml(manifest),
        "may_edit": visit.may(ApplyNodePool) and visit.is_live,
        "status": to_yaml({"status": pool.document.get("status", {})}),
        "shells": visit.of_moment(commands.get_yaml(place))
        if visit.shown is not None
        else commands.list_edit_commands(place),
    }
    return Page("yaml.html", f"{place.name} · YAML", "nodepools", values)


def to_yaml(document: object) -> str:
    """Return a document as YAML."""
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)


async def show_node(visit: Visit) -> Page:
    """Show a Node."""
    place, account = visit.place, visit.account
    pool = account.mirror.pool_of(place)
    member = next((each for each in pool.members if each.place == place), None) if pool else None
    if pool is None or member is None:
        return await show_gone(visit, "Node")
    if member.facts.problems:
        pool = await _explain(visit, pool.place)
    happenings = await account.history.events_of("Node", place)
    shown = build_node_page(pool, member)
    verbs = [verb for verb in list_verbs(visit, pool, place) if visit.is_live]
    values = {
        "shown": shown,
        "history": build_timeline(pool, happenings).past,
        "verbs": verbs,
        "shells": visit.of_moment(
            commands.nodepool("describe", "node", place.name, cluster=place.cluster)
        ),
    }
    return Page("node.html", f"{place.name} · Node", "nodepools", values)


def list_verbs(visit: Visit, pool: Pool, place: Place) -> list[str]:
    """Return the actions that have an effect on a Node, and that the user may take."""
    member = next((each for each in pool.members if each.place == place), None)
    if member is None:
        return []
    fits = find_verbs(pool, member.facts)
    return [verb for verb, command in VERBS.items() if verb in fits and visit.may(command)]


async def show_events(visit: Visit) -> Page:
    """Show the newest events."""
    mirror = visit.account.mirror
    found = list_events(mirror.happenings.all(), read_events_asked(visit.query))
    is_past = visit.shown is not None
    (shell,) = visit.of_moment(commands.nodepool("events", *(() if is_past else ("-w",))))
    values = {"list": found, "clusters": mirror.clusters, "shell": shell}
    return Page("events.html", "Events", "events", values)


async def show_event(visit: Visit) -> Page:
    """Show what is at one position of the log, and what happened around it."""
    cluster, text = visit.parts["cluster"], visit.parts["position"]
    position = parse_position(text) or 0
    known = cluster in visit.account.mirror.clusters and position > 0
    around = await visit.account.history.around(cluster, position) if known else []
    own = [each for each in around if each.position == position]
    command = message = None
    if not known:
        raise Missing(f"Cluster {cluster} has no log position {text}.")
    if not own:
        history = visit.account.history
        message = await history.message_at(cluster, position)
        command = await history.command_at(position) if message is None else None
    values = {
        "cluster": cluster,
        "position": position,
        "own": own,
        "command": command,
        "message": to_yaml(message) if message is not None else "",
        "around": list_events(around, EventsAsked()).lines,
    }
    return Page("event.html", f"log {position}", "events", values)


async def show_preemptions(visit: Visit) -> Page:
    """Show the preemptions that run, and those of the last days."""
    pools = list(visit.account.mirror.fleet().pools.values())
    try:
        history, fault = await visit.account.history.preemptions(), ""
    except ClientError as error:
        history, fault = (), str(error)
    shown = build_preemptions(pools, history, visit.now)
    may = visit.may(AcknowledgePreemption) and visit.is_live
    values = {"shown": shown, "fault": fault, "may_acknowledge": may}
    title = f"({len(shown.running)}) Preemptions" if shown.running else "Preemptions"
    shells = visit.of_moment(commands.nodepool("get", "preemptions", "-A"))
    return Page("preemptions.html", title, "preemptions", {**values, "shells": shells})


async def show_capacity(visit: Visit) -> Page:
    """Show the Capacity Finder, and the zones that it has found."""
    mirror = visit.account.mirror
    chosen = read_selections(visit.lists.get("type", []), visit.lists.get("count", []))
    found = fault = None
    if chosen and not any(each.fault for each in chosen):
        items = [{"instanceType": each.instance_type, "count": each.number} for each in chosen]
        try:
            answer = await visit.account.ask("FindCapacity", {"selections": items})
            found = read_found(answer, mirror.fleet().zones)
        except ClientError as error:
            fault = str(error)
    words = [f"{each.instance_type}={each.number}" for each in chosen]
    add = "add" in visit.query
    rows = chosen or (Selection(USUAL_TYPE, str(USUAL_COUNT)),)
    if add:
        rest = next(name for name in INSTANCE_TYPES if name not in {r.instance_type for r in rows})
        rows = (*rows, Selection(rest, str(USUAL_COUNT)))
    values = {
        "chosen": chosen,
        "rows": rows,
        "types": sorted(INSTANCE_TYPES),
        "found": None if add else found,
        "fault": fault,
        "shells": [commands.nodepool("find", "capacity", *words)] if visit.shown is None else [],
        "ask": ask_without,
        "may_create": visit.may(ApplyNodePool) and visit.is_live,
    }
    return Page("capacity.html", "Capacity", "capacity", values)
