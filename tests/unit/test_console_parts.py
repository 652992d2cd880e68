"""Long pages of the console, which are sent part by part."""

import re
from datetime import UTC, datetime
from functools import partial

import pytest

pytest.importorskip("starlette", reason="needs the packages of nodepool[console]")

from jinja2 import UndefinedError

from console.host.rendering import PART_CHARS, Page, lead, render
from console.host.web import _send
from console.view.events import Line
from console.view.model import Happening

NOW = datetime(2026, 11, 23, 16, 49, 18, tzinfo=UTC)
FRAME = {
    "nonce": "n0",
    "whole": True,
    "said": "",
    "visit": None,
    "path": "/events/demo/7",
    "now": NOW,
    "is_live": False,
    "has_past": False,
}
"""The values of a page beside its links, for somebody who is not signed in."""

LOG = re.compile('class="log" href="([^"]+)"')


def event_page(events: int) -> Page:
    """The page of an event, with as many events around it."""
    around = [
        Line(Happening("demo", at, NOW, "Normal", "Scaled", "NodePool", "train", "text"), ())
        for at in range(events)
    ]
    about = {"cluster": "demo", "position": 7, "own": [], "command": None, "message": ""}
    return Page("event.html", "log 7", "events", {**about, "around": around})


def test_a_long_page_begins_with_its_style_and_first_rows_and_the_rest_follows() -> None:
    parts = [*render(event_page(500), **FRAME, to=partial(lead, ""))]

    first, *rest = parts
    assert len(parts) > 2
    assert all(len(part) >= PART_CHARS for part in parts[:-1])
    assert first.startswith("<!doctype html>")
    assert '<a class="log" href="/events/demo/9">' in first
    assert 'href="/events/demo/499"' not in first
    assert 'href="/events/demo/499"' in rest[-1]
    assert rest[-1].rstrip().endswith("</html>")


def test_a_short_page_is_one_part() -> None:
    assert len([*render(event_page(2), **FRAME, to=partial(lead, ""))]) == 1


def test_a_fault_in_a_template_is_an_error_before_an_answer_begins() -> None:
    with pytest.raises(UndefinedError):
        _send(Page("event.html", "log 7", "events"), {**FRAME, "to": partial(lead, "")})


def test_pages_that_are_made_in_turn_keep_their_own_links() -> None:
    # given a page of now and one of the past
    present = render(event_page(500), **FRAME, to=partial(lead, ""))
    past = render(event_page(500), **FRAME, to=partial(lead, "123"))

    # when each is made for a while, in turn
    pairs = [*zip(present, past, strict=False)]

    # then all links of the past stay there, and no link of now leads there
    assert len(pairs) > 2
    for now, then in pairs:
        assert [link for link in LOG.findall(now) if "?" in link] == []
        assert [link for link in LOG.findall(then) if not link.endswith("?at=123")] == []
        assert len(LOG.findall(then)) > 20
