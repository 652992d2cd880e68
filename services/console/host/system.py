"""The pages of operators: the system, and a dead letter that can be sent again."""

from console.host.actions import Outcome, note_of
from console.host.operations import examine_letter, replay_letter
from console.host.rendering import Done, Page
from console.host.visit import Missing, NotAllowed, Visit
from console.view import commands
from console.view.fleet import build_fleet
from console.view.moments import parse_position
from console.view.system import build_system
from nodepool.client import ClientError
from nodepool.client.errors import NotFound


def require_operator(visit: Visit) -> None:
    """Raise NotAllowed if the user is no operator of the platform."""
    if not visit.is_operator:
        role = visit.account.identity.role
        text = f"With the role {role} you may not see the system. Ask an operator of the platform."
        raise NotAllowed(text)


async def show_system(visit: Visit) -> Page:
    """Show the services, the log and its archive, and the dead letters."""
    require_operator(visit)
    found = visit.account.operations.read()
    shown = build_system(found.findings, len(found.letters) + found.older)
    title = f"({shown.needs_person}) System" if shown.needs_person else "System"
    values = {
        "shown": shown,
        "letters": found.letters,
        "older": found.older,
        "looked_at": found.looked_at,
        "shells": [commands.nodepool("doctor"), commands.nodepool("dead", "list")],
    }
    return Page("system.html", title, "system", values)


async def show_fleet(visit: Visit) -> Page:
    """Show the machines of all zones: used, held back, in triage and free."""
    require_operator(visit)
    found = visit.account.operations.read()
    shells = [
        commands.nodepool("get", "capacities"),
        commands.nodepool("get", "machines"),
        commands.nodepool("reclaim", "ZONE", "TYPE", "COUNT"),
        commands.nodepool("return", "ZONE", "TYPE", "COUNT"),
    ]
    values = {"shown": build_fleet(found.stocks), "looked_at": found.counted_at, "shells": shells}
    return Page("fleet.html", "Machines", "fleet", values)


async def replay(visit: Visit) -> Outcome:
    """Show a dead letter and a replay's effect; send its command again if the form was sent."""
    require_operator(visit)
    text = visit.parts["position"]
    position = parse_position(text)
    if not position:
        raise Missing(f"There is no dead letter {text}.")
    client = visit.account.client()
    try:
        letter, refusal, replayed = await examine_letter(client, position)
    except NotFound as error:
        raise Missing(str(error)) from None
    note = note_of(visit) if visit.typed else ""
    may_send = not replayed.why_not or (replayed.is_stale and visit.typed.get("force") == "yes")
    if visit.typed and not note and may_send:
        try:
            return Done("/system", await replay_letter(client, letter, replayed))
        except ClientError as error:
            note = str(error)
    values = {
        "letter": letter,
        "refusal": refusal,
        "replay": replayed,
        "note": note,
        "can_send": replayed.entry is not None and (not replayed.why_not or replayed.is_stale),
        "shells": [
            commands.nodepool("dead", "show", text),
            commands.nodepool("dead", "replay", text, *(["--force"] * replayed.is_stale)),
        ],
    }
    status = 422 if note or visit.typed else 200
    return Page("letter.html", f"Dead letter {text}", "system", values, status)
