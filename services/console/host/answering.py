"""Answers requests: with a page of now, a page of the past, or the result of an action."""

from dataclasses import replace
from typing import Final

from console.host.past import NoSuchMoment, look_back
from console.host.rendering import Done, Page
from console.host.routes import OF_ACTIONS, OF_OPERATORS, OF_THE_PAST, PAGES, Act, Show
from console.host.visit import Missing, NotAllowed, Visit
from console.view.moments import parse_at, read_at
from nodepool.client import ClientError

UNREAD: Final = (
    "The control plane has not answered yet. The console keeps asking,"
    " and this page fills by itself once there is an answer."
)
OPERATORS_PLACE: Final = (
    "The operator of the platform belongs to no organisation."
    " Sign in as a user of an organisation to see its NodePools."
)
NO_CHANGES: Final = "Nothing can be changed in the past. Go back to now, and try again there."
ONLY_NOW: Final = "This page shows only what is so now. Leave out the moment in its address."
NO_MOMENT: Final = (
    "is no moment. Write a time, such as 2026-11-28T14:03:00Z, or a position of the log."
)


async def find_answer(visit: Visit, show: Show | Act) -> tuple[Visit, Page | Done]:
    """Return the page that a user gets, or the result of an action; an error is a page, too.

    The visit that comes back is one to the past if the page shows the past.
    """
    if not visit.account.mirror.is_read:
        if visit.typed:
            kept = {"kept": visit.typed, "has_ended": False}
            return visit, Page("kept.html", "No answer yet", "", kept, 503)
        return visit, Page("missing.html", "No answer yet", "", {"text": UNREAD}, 503)
    try:
        if visit.is_operator and show not in OF_OPERATORS:
            raise NotAllowed(OPERATORS_PLACE)
        visit = await _go_back(visit, show)
        return visit, await show(visit)
    except Missing as missing:
        values = {"text": str(missing), "events": missing.events}
        return visit, Page("missing.html", "Not found", "", values, 404)
    except NoSuchMoment as error:
        return visit, Page("missing.html", "No such moment", "", {"text": str(error)}, 404)
    except NotAllowed as denial:
        return visit, Page("missing.html", "Not allowed", "", {"text": str(denial)}, 403)
    except ClientError as error:
        return visit, Page("missing.html", "No answer", "", {"text": str(error)}, 503)


async def _go_back(visit: Visit, show: Show | Act) -> Visit:
    """Return a visit to the moment that the address names; the same one if it names none."""
    text = read_at(visit.lists.get("at", []))
    if not text:
        return visit
    if show in OF_ACTIONS:
        raise NotAllowed(NO_CHANGES)
    if show not in OF_THE_PAST:
        raise Missing(ONLY_NOW)
    at = parse_at(text)
    if at is None:
        raise NoSuchMoment(f"{text!r} {NO_MOMENT}")
    account = await look_back(visit.account, text, at)
    if show is PAGES["/nodepools"]:
        await account.explain_rows(visit.query)
    if show is PAGES["/events"]:
        await account.read_happenings()
    shown = account.shown
    return replace(visit, account=account, now=shown.time, shown=shown)
