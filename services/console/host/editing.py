"""Editing a NodePool: the form, the manifest, the verdict of the server, and conflicts."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from console.host.actions import SHOW, Outcome, note_of, require
from console.host.pages import to_yaml
from console.host.rendering import Done, Page
from console.host.visit import Missing, Visit
from console.view import commands
from console.view.editing import Merge, change_document, compare_texts, fill_form, merge
from console.view.forms import FIELDS, TEXT_MAX, Form, check_form, place_fault
from console.view.model import Place
from console.view.organisation import describe_room
from console.view.verdict import REFUSED, Verdict, judge_target
from nodepool.client import ClientError
from nodepool.client.errors import Refused
from nodepool.client.manifests import ManifestError, parse_manifest, parse_yaml, stored_document
from nodepool.client.stored import stored_in
from nodepool.contract.commands import ApplyNodePool
from nodepool.contract.documents import Document, field, text

NEWER_S: Final = 2.0
"""After a save that another user's change prevents, the console waits so many seconds to hear of
that change."""
AS_YAML: Final = "yaml"
"""The way of editing in which users type the manifest itself."""
FIXED: Final = ("name", "cluster", "type", "class")
"""The fields of the form that cannot be changed."""
GONE = "Not saved: another user deleted this NodePool. Copy what you typed from here."
CLASH = "Not saved: another user changed the same field. Save again to replace that value."


@dataclass(frozen=True, slots=True)
class Draft:
    """The input of a user.

    opened: the manifest that was opened. document: the manifest as it was typed.
    way: `form` or `yaml`. yaml: the typed YAML. form: the typed values.
    fault: why the YAML cannot be read; empty if it can.
    """

    opened: Document
    document: Document
    way: str
    yaml: str
    form: Form
    fault: str = ""

    @property
    def is_whole(self) -> bool:
        """Return whether the draft has no fault that is found without the server."""
        return not self.fault and not self.form.faults


async def edit(visit: Visit) -> Outcome:
    """Show the form to edit a NodePool; have it checked, or save it, if it was sent."""
    require(visit, ApplyNodePool, "edit NodePools")
    place, newest = visit.place, _read(visit)
    absence = Missing(f"There is no NodePool {place.name} in cluster {place.cluster}.")
    if not visit.typed:
        if newest is None:
            raise absence
        way = AS_YAML if visit.query.get("as") == AS_YAML else "form"
        return _show(visit, _open(newest, newest, way))
    draft = _draft(visit, newest or {})
    if newest is None:
        if not draft.opened:
            raise absence
        return _show(visit, draft, note=GONE)
    do = visit.typed.get("do", "")
    if do == SHOW:
        return _show(visit, draft)
    if not draft.is_whole:
        return _show(visit, draft, status=422)
    if do in (AS_YAML, "form"):
        return _show(visit, _open(draft.opened, draft.document, do))
    return await _send(visit, draft, newest, is_check=do != "save")


async def _send(
    visit: Visit, draft: Draft, newest: Document, *, is_check: bool, is_first: bool = True
) -> Outcome:
    """Have the server check or store the typed manifest, unless another user changed it first."""
    merged = merge(draft.opened, newest, draft.document)
    draft = _open(newest, merged.document, draft.way)
    note = note_of(visit)
    if note or (merged.has_clash and not is_check):
        return _show(visit, draft, merged, note=note or CLASH)
    if not is_check and merged.document == newest:
        return Done(_address(visit.place), f"{visit.place.name} is unchanged.")
    try:
        command = _command(visit, merged.document, newest, is_check=is_check)
        await visit.send(command)
    except Refused as refusal:
        if refusal.reason == "Conflict" and is_first:
            late = await _read_later(visit, newest)
            if late is not None:
                return await _send(visit, draft, late, is_check=is_check, is_first=False)
        return _refuse(visit, draft, merged, refusal)
    except ClientError as error:
        return _show(visit, draft, merged, note=str(error))
    if is_check:
        fleet, spec = visit.account.mirror.fleet(), command.spec
        verdict = judge_target(fleet, visit.place, spec.instance_type, spec.target)
        return _show(visit, draft, merged, verdict=verdict)
    kept = ", ".join(each.path for each in merged.others)
    beside = f" Fields that another user changed meanwhile are kept: {kept}." if kept else ""
    return Done(_address(visit.place), f"{visit.place.name} is saved.{beside}")


def _refuse(visit: Visit, draft: Draft, merged: Merge, refusal: Refused) -> Page:
    name = place_fault(refusal.field, draft.form)
    faults = {name: refusal.message} if name and name not in FIXED else {}
    form = replace(draft.form, faults=faults)
    fault = "" if faults and draft.way != AS_YAML else str(refusal)
    shown = replace(draft, form=form, fault=fault)
    return _show(visit, shown, merged, verdict=Verdict(REFUSED), status=422)


async def _read_later(visit: Visit, before: Document) -> Document | None:
    """Return the manifest once it has a new generation; None if it keeps the old one."""
    mirror, ends = visit.account.mirror, time.monotonic() + NEWER_S
    while True:
        revision, found = mirror.revision, _read(visit)
        if field(found, "metadata", "generation") != field(before, "metadata", "generation"):
            return found
        if not await mirror.wait_for_change(revision, ends - time.monotonic()):
            return None


def _read(visit: Visit) -> Document | None:
    """Return the manifest of the NodePool as it is now; None if there is no such NodePool."""
    pool, place = visit.account.mirror.pool(visit.place), visit.place
    if pool is None:
        return None
    stored = stored_in(pool.document, visit.account.identity.org, place.cluster)
    return stored_document(stored) if stored is not None else pool.document


def _open(opened: Document, document: Document, way: str) -> Draft:
    return Draft(opened, document, way, to_yaml(_own(document)), fill_form(document))


def _own(document: Document) -> Document:
    """Return a manifest without the fields that the control plane sets."""
    metadata = field(document, "metadata")
    names = ("name", "labels", "annotations")
    given = {name: field(metadata, name) for name in names}
    kept = {name: value for name, value in given.items() if value}
    return {**document, "metadata": kept}


def _draft(visit: Visit, newest: Document) -> Draft:
    """Return the draft that a form has sent; the form carries the manifest that was opened."""
    typed = visit.typed
    opened = _parse(typed.get("opened", ""), visit.place.name, newest)
    before = _parse(typed.get("draft", ""), visit.place.name, opened)
    if typed.get("way") == AS_YAML:
        return _draft_of_yaml(visit, opened, before)
    fixed = fill_form(before).values
    given = {name: typed[name].strip()[:TEXT_MAX] for name in FIELDS if name in typed}
    own = {name: fixed.get(name, "") for name in FIXED}
    form = Form({**fixed, **given, **own, "cluster": visit.place.cluster})
    faults = check_form(form, [visit.place.cluster]).faults
    # The server judges the fields that the user left as they were.
    found = {name: text for name, text in faults.items() if form.value(name) != fixed.get(name)}
    form = replace(form, faults=found)
    document = change_document(before, form)
    return Draft(opened, document, "form", to_yaml(_own(document)), form)


def _draft_of_yaml(visit: Visit, opened: Document, before: Document) -> Draft:
    given = visit.typed.get("yaml", "").replace("\r\n", "\n")
    found, fault = before, ""
    try:
        body = parse_yaml(given, "the manifest")
        command = parse_manifest(body, "the manifest")
    except ManifestError as error:
        fault = str(error)
    else:
        assert isinstance(body, dict), "a manifest is a map"
        found = {**body, "metadata": {**_versions(opened), **body["metadata"]}}
        if command.pool != visit.place.name:
            fault = f"metadata.name: stays {visit.place.name}; a name cannot be changed"
    return Draft(opened, found, AS_YAML, given, fill_form(found), fault)


def _versions(opened: Document) -> Mapping[str, object]:
    """Return the fields of the metadata that the control plane has set."""
    metadata = field(opened, "metadata")
    known = metadata if isinstance(metadata, Mapping) else {}
    return {k: v for k, v in known.items() if k not in ("name", "labels", "annotations")}


def _parse(content: str, name: str, usual: Document) -> Document:
    """Return the manifest of a NodePool that a form carries; `usual` if it carries none."""
    try:
        found = parse_yaml(content, "the form")
    except ManifestError:
        return usual
    return found if isinstance(found, dict) and text(found, "metadata", "name") == name else usual


def _command(
    visit: Visit, document: Document, newest: Document, *, is_check: bool
) -> ApplyNodePool:
    """Return the command that stores a manifest; raise Refused for an invalid field."""
    try:
        command = parse_manifest(document, "form")
    except ManifestError as error:
        _, _, rest = str(error).partition(": ")
        path, _, cause = rest.partition(": ")
        raise Refused(path, "Invalid", cause or rest) from None
    generation = field(newest, "metadata", "generation")
    metadata = command.metadata.model_copy(
        update={
            "resource_version": text(newest, "metadata", "resourceVersion") or None,
            "generation": generation if isinstance(generation, int) else None,
            "uid": text(newest, "metadata", "uid") or None,
        }
    )
    own = {"org": visit.account.identity.org, "cluster": visit.place.cluster}
    return command.model_copy(update={**own, "metadata": metadata, "dry_run": is_check})


def _show(
    visit: Visit,
    draft: Draft,
    merged: Merge | None = None,
    *,
    note: str = "",
    verdict: Verdict | None = None,
    status: int = 200,
) -> Page:
    place, fleet = visit.place, visit.account.mirror.fleet()
    known = fleet.pools.get(place)
    values = {
        "place": place,
        "room": describe_room(fleet, known.zone, known.facts.instance_type, place) if known else "",
        "draft": draft,
        "form": draft.form,
        "others": merged.others if merged is not None else (),
        "note": note,
        "verdict": verdict,
        "is_shown": visit.typed.get("do") == SHOW,
        "has_racks": field(draft.document, "spec", "targetRacks") is not None,
        "opened": json.dumps(draft.opened),
        "sent": json.dumps(draft.document),
        "changes": compare_texts(to_yaml(_own(draft.opened)), to_yaml(_own(draft.document))),
        "shells": commands.list_edit_commands(place),
    }
    return Page("edit.html", f"Edit {place.name}", "nodepools", values, status)


def _address(place: Place) -> str:
    return f"/nodepools/{place.cluster}/{place.name}"
