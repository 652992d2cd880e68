"""The actions of users: create, scale and delete NodePools, and act on Nodes."""

from collections.abc import Mapping
from dataclasses import replace

from console.host.identities import PEOPLE
from console.host.pages import VERBS, find_pool, list_verbs, to_yaml
from console.host.rendering import Done, Page
from console.host.visit import Missing, NotAllowed, Visit
from console.view import commands
from console.view.forms import Form, build_manifest, list_create_commands, place_fault, read_form
from console.view.model import Place, Pool
from console.view.nodes import work_of
from console.view.organisation import describe_room
from console.view.verdict import REFUSED, Verdict, judge_target
from nodepool.client import ClientError
from nodepool.client.errors import Refused
from nodepool.client.manifests import ManifestError, parse_manifest
from nodepool.contract.catalog import INSTANCE_TYPES, is_offered, is_spot_offered
from nodepool.contract.commands import (
    ApplyNodePool,
    CordonNode,
    DeleteNodePool,
    DrainNode,
    RebootNode,
    ScaleNodePool,
)
from nodepool.contract.counting import format_count
from nodepool.contract.messages import Command
from nodepool.contract.model import NODES_MAX
from nodepool.contract.roles import SENDERS

STALE = (
    "This form was made in an earlier session. Nothing was sent: check the form, and send it again."
)
SHOW = "show"
"""The value of `do` in a form that asks for its manifest, and for nothing else."""
OFF = "Actions are off until the console is live again. Nothing was sent."
Outcome = Page | Done
"""A page to show, or the result of an action."""


def require(visit: Visit, command: type[Command], what: str) -> None:
    """Raise NotAllowed, which names the role, if the user may not send a command."""
    if not visit.may(command):
        role = visit.account.identity.role
        allowed = " or an ".join(each for each in PEOPLE if each in SENDERS[command])
        raise NotAllowed(f"With the role {role} you may not {what}. Ask an {allowed}.")


def note_of(visit: Visit) -> str:
    """Return why a form that was sent is not carried out yet; empty if nothing prevents that."""
    if not visit.is_trusted:
        return STALE
    return "" if visit.is_live else OFF


# Creating.


async def create(visit: Visit) -> Outcome:
    """Show the form for a new NodePool; check it or create the NodePool if it was sent."""
    require(visit, ApplyNodePool, "create NodePools")
    clusters = visit.account.mirror.clusters
    if not visit.typed:
        known = dict(visit.query)
        form = Form({**known, "cluster": known.get("cluster") or next(iter(clusters), "")})
        return _form_page(visit, form)
    form = read_form(visit.typed, clusters)
    if visit.typed.get("do") == SHOW:
        return _form_page(visit, replace(form, faults={}))
    note = note_of(visit)
    if note or form.faults:
        return _form_page(visit, form, note=note)
    is_check = visit.typed.get("do") == "check"
    try:
        command = _command_of(visit, form)
        await visit.send(command.model_copy(update={"dry_run": is_check}))
    except Refused as refusal:
        fault = {place_fault(refusal.field, form): refusal.message}
        verdict = Verdict(REFUSED, str(refusal))
        return _form_page(visit, replace(form, faults=fault), verdict=verdict)
    except ClientError as error:
        return _form_page(visit, form, note=str(error))
    if is_check:
        pool = visit.account.mirror.pool(form.place)
        text = "The server would create it." if pool is None else "The server would change it."
        fleet, spec = visit.account.mirror.fleet(), command.spec
        verdict = judge_target(fleet, form.place, spec.instance_type, spec.target, text)
        return _form_page(visit, form, verdict=verdict)
    return Done(
        _address(form.place), f"{form.place.name} is created. This page shows its Nodes join."
    )


def _command_of(visit: Visit, form: Form) -> ApplyNodePool:
    """Return the command of a form; raise Refused, as the server would, for an invalid field."""
    try:
        command = parse_manifest(build_manifest(form), "form")
    except ManifestError as error:
        _, _, rest = str(error).partition(": ")
        path, _, cause = rest.partition(": ")
        raise Refused(path, "Invalid", cause or rest) from None
    place, org = form.place, visit.account.identity.org
    own = {"org": org, "cluster": place.cluster, "pool": place.name, "create_only": True}
    return command.model_copy(update=own)


def _form_page(visit: Visit, form: Form, *, note: str = "", verdict: Verdict | None = None) -> Page:
    zones = visit.account.mirror.fleet().zones
    zone = zones.get(form.value("cluster"), "")
    offers = is_spot_offered if form.value("class") == "spot" else is_offered
    values = {
        "form": form,
        "note": note,
        "verdict": verdict,
        "zones": sorted(zones.items()),
        "types": [(each, offers(name, zone)) for name, each in sorted(INSTANCE_TYPES.items())],
        "manifest": to_yaml(build_manifest(form)),
        "room": describe_room(visit.account.mirror.fleet(), zone, form.value("type")),
        "shells": list_create_commands(form),
    }
    status = 422 if form.faults else 200
    return Page("create.html", "Create a NodePool", "nodepools", values, status)


# Scaling and deleting.


async def scale(visit: Visit) -> Outcome:
    """Show the plan to scale a NodePool; have it checked, or carry it out, if it was sent."""
    require(visit, ScaleNodePool, "scale NodePools")
    pool = find_pool(visit, visit.place)
    before = pool.facts.target
    given = (visit.typed or visit.query).get("target", "").strip()
    if not given:
        return _plan(visit, pool, str(before))
    is_number = given.isascii() and given.isdecimal() and len(given) <= 7
    if not is_number or int(given) > NODES_MAX:
        fault = f"Give a whole number from 0 to {NODES_MAX:,}, for example {before}."
        return _plan(visit, pool, given, fault=fault)
    if not visit.typed:
        return _plan(visit, pool, given)
    note = note_of(visit)
    if not note and visit.typed.get("before") not in ("", None, str(before)):
        was = visit.typed["before"]
        note = f"Not saved: another user changed the target from {was} to {before}."
    if note:
        return _plan(visit, pool, given, note=note)
    is_check = visit.typed.get("do") == "check"
    command = ScaleNodePool(
        org=visit.account.identity.org,
        cluster=visit.place.cluster,
        pool=visit.place.name,
        target_nodes=int(given),
        dry_run=is_check,
    )
    try:
        await visit.send(command)
    except ClientError as error:
        return _plan(visit, pool, given, refusal=str(error))
    if is_check:
        fleet, kind = visit.account.mirror.fleet(), pool.facts.instance_type
        verdict = judge_target(fleet, pool.place, kind, int(given))
        return _plan(visit, pool, given, verdict=verdict)
    said = f"{pool.place.name} is scaled from {before:,} to {int(given):,} Nodes."
    return Done(_address(pool.place), said)


def _plan(
    visit: Visit,
    pool: Pool,
    given: str,
    *,
    fault: str = "",
    note: str = "",
    refusal: str = "",
    verdict: Verdict | None = None,
) -> Page:
    target = int(given) if given.isascii() and given.isdecimal() and not fault else None
    values = {
        "pool": pool,
        "given": given,
        "target": target,
        "fault": fault,
        "note": note,
        "refusal": refusal,
        "verdict": Verdict(REFUSED) if refusal else verdict,
        "room": describe_room(
            visit.account.mirror.fleet(), pool.zone, pool.facts.instance_type, pool.place
        ),
        "shells": commands.list_scale_commands(pool.place, target if target is not None else 0),
    }
    status = 422 if fault or refusal else 200
    return Page("scale.html", f"Scale {pool.place.name}", "nodepools", values, status)


async def delete(visit: Visit) -> Outcome:
    """Ask for the name of a NodePool, and delete it if its name was typed."""
    require(visit, DeleteNodePool, "delete NodePools")
    pool = find_pool(visit, visit.place)
    given = visit.typed.get("name", "").strip()
    fault = note = ""
    if visit.typed:
        note = note_of(visit)
        if not note and given != pool.place.name:
            fault = f"Type {pool.place.name}, the name of the NodePool, exactly."
        if not note and not fault:
            place, org = pool.place, visit.account.identity.org
            try:
                await visit.send(DeleteNodePool(org=org, cluster=place.cluster, pool=place.name))
                return Done("/nodepools", _say_deleted(pool))
            except ClientError as error:
                note = str(error)
    runs = [member for member in pool.members if member.facts.active]
    values = {
        "pool": pool,
        "given": given,
        "fault": fault,
        "note": note,
        "runs": runs,
        "shells": commands.list_delete_commands(pool.place),
    }
    status = 422 if fault or note else 200
    return Page("delete.html", f"Delete {pool.place.name}", "nodepools", values, status)


def _say_deleted(pool: Pool) -> str:
    count = len(pool.members)
    nodes = f": {format_count(count)} to be drained and given back" if count else ""
    return f"{pool.place.cluster}/{pool.place.name} is being deleted{nodes}."


# Nodes.


async def act(visit: Visit) -> Outcome:
    """Show what an action on a Node does, and carry it out if the form was sent."""
    verb, place = visit.parts["verb"], visit.place
    if verb not in VERBS:
        raise Missing(f"There is no action {verb}.")
    require(visit, VERBS[verb], f"{verb} Nodes")
    pool = visit.account.mirror.pool_of(place)
    if pool is None:
        raise Missing(f"There is no Node {place.name} in cluster {place.cluster}.")
    note = note_of(visit) if visit.typed else ""
    if visit.typed and not note:
        try:
            await visit.send(_node_command(visit, verb, pool, visit.typed))
            return Done(
                f"/nodes/{place.cluster}/{place.name}",
                f"{verb.capitalize()} of {place.name} is accepted.",
            )
        except ClientError as error:
            note = str(error)
    member = next(each for each in pool.members if each.place == place)
    values = {
        "verb": verb,
        "pool": pool,
        "member": member,
        "work": work_of(member.facts),
        "note": note,
        "fits": verb in list_verbs(visit, pool, place),
        "is_forced": (visit.typed or visit.query).get("force") == "yes",
        "shells": commands.list_node_commands(verb, place),
    }
    status = 422 if note else 200
    return Page("act.html", f"{verb} {place.name}", "nodepools", values, status)


def _node_command(visit: Visit, verb: str, pool: Pool, typed: Mapping[str, str]) -> Command:
    fields: dict[str, object] = {
        "org": visit.account.identity.org,
        "cluster": pool.place.cluster,
        "pool": pool.place.name,
        "node": visit.place.name,
    }
    kind = VERBS[verb]
    if kind is CordonNode:
        fields["reason"] = "AdminCordon"
    if kind is DrainNode:
        fields |= {"reason": "AdminDrain", "force": typed.get("force") == "yes"}
    if kind is RebootNode:
        fields["force"] = typed.get("force") == "yes"
    return kind.model_validate(fields)


def _address(place: Place) -> str:
    return f"/nodepools/{place.cluster}/{place.name}"
