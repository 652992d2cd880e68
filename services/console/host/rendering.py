"""Renders pages as HTML: the templates, and the functions that they may call."""

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Final, cast
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from console.host.files import asset, read_style
from console.view.model import Place
from console.view.nodes import Cell
from console.view.pools import Line
from console.view.standing import sentence
from console.view.times import format_countdown, format_due, format_duration, parse_moment

FOLDER: Final = Path(__file__).parents[1]
PARTS_MAX: Final = 2_000
"""The most parts of a user's pages that are kept: those that were shown last."""
PART_CHARS: Final = 48_000
"""The size of a part of a page, in characters: the first holds style, head and one screen."""
STAMPS_MAX: Final = 4_096
"""The most moments of which the text is kept."""
PATHS_MAX: Final = 4_096
"""The most paths that are kept: those that were linked to last."""
Link = Callable[..., str]
"""Returns the address of a page from the parts of its path and its query, as `lead` does."""
_LINK: Final[ContextVar[Link]] = ContextVar("link")
"""What makes the links of the page that is rendered now."""
NONE: Final = "\N{EN DASH}"
"""The text for a missing value."""


@dataclass(frozen=True, slots=True)
class Page:
    """What a page shows.

    template: the file. title: the title of the window. section: the part of the navigation.
    """

    template: str
    title: str
    section: str
    values: Mapping[str, object] = field(default_factory=dict)
    status: int = 200


@cache
def environment() -> Environment:
    """Return the templates: everything is escaped, and an unknown name is an error."""
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters["part"] = lambda text: quote(str(text), safe="")
    made.filters["say"] = say
    made.filters["relate"] = relate
    made.filters["sentence"] = sentence
    made.filters["number"] = lambda value: f"{value:,}"
    made.globals.update(
        ago=_ago,
        at=_at,
        left=_left,
        due=_due,
        day=_day,
        address=address,
        asset=asset,
        clock=_clock,
        to=_to,
    )
    made.globals["style"] = read_style()
    return made


@dataclass(frozen=True, slots=True)
class Done:
    """The result of an action: the address that the browser goes to, and a sentence for it."""

    address: str
    said: str


def render(page: Page, **values: object) -> Iterator[str]:
    """Yield the parts of a page as HTML; the value `to`, a `Link`, makes its links.

    The macros of `parts.html` find `to` here: imported with the context of a page, each page would
    make them anew, as cycles of objects that only the garbage collector frees.
    """
    # The values of a page are objects of any type; its `to` is always a link.
    link = cast("Link", values["to"])
    pieces = environment().get_template(page.template).generate(page=page, **page.values, **values)
    while part := _join(pieces, link):
        yield part


def _join(pieces: Iterator[str], link: Link) -> str:
    """Return the next `PART_CHARS` of a page; empty at its end."""
    token, taken, size = _LINK.set(link), list[str](), 0
    try:
        for piece in pieces:
            taken.append(piece)
            size += len(piece)
            if size >= PART_CHARS:
                break
    finally:
        _LINK.reset(token)
    return "".join(taken)


def _to(*parts: object, **query: object) -> str:
    return _LINK.get()(*parts, **query)


def make_row(line: Line, now: datetime, to: Link, *, may_change: bool) -> Markup:
    """Return a NodePool as a row of the list."""
    return _call("pool_row.html", "row", line, now, to, may_change)


def make_cells(cells: Sequence[Cell], to: Link, *, has_names: bool) -> Markup:
    """Return some Nodes as a part of a grid."""
    return _call("cells.html", "part", cells, to, has_names)


def _call(template: str, macro: str, *values: object) -> Markup:
    """Return what a macro of a template makes; a context for each row would cost more than it."""
    module = environment().get_template(template).module
    return Markup(vars(module)[macro](*values))


class Parts:
    """Parts of open pages: each is made once for each change of what it shows.

    A part shows the times of the moment when it was made; the browser updates them.
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, tuple[object, Markup]] = {}

    def make(self, key: Hashable, shown: object, make: Callable[[], Markup]) -> Markup:
        """Return the part of a key as it was made before, unless it shows something else now."""
        known = self._made.pop(key, None)
        if known is None or known[0] != shown:
            known = shown, make()
            if len(self._made) >= PARTS_MAX:
                del self._made[next(iter(self._made))]
        self._made[key] = known
        return known[1]


def address(path: str, **query: object) -> str:
    """Return a path with a query of the values that are not empty."""
    given = {name.rstrip("_"): value for name, value in query.items() if value not in ("", None)}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def lead(at: str, *parts: object, **query: object) -> str:
    """Return the address of the page with these parts in its path, at a moment unless it is empty.

    A place is two parts: its cluster and its name. Every page that shows a moment makes its links
    by this, so that they stay at the moment.
    """
    return address(_join_path(parts), at=at, **query)


@lru_cache(maxsize=PATHS_MAX)
def _join_path(parts: tuple[object, ...]) -> str:
    path = ""
    for part in parts:
        names = (part.cluster, part.name) if isinstance(part, Place) else (part,)
        path += "".join(f"/{quote(str(name), safe='')}" for name in names)
    return path


def say(words: str) -> Markup:
    """Return a sentence in which moments are times of day, and numbers are bold."""
    return Markup("").join(map(_say_part, _PARTS.split(words)))


_MOMENT: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,15}Z"
_WHEN: Final = re.compile(rf"(?:\bat )?({_MOMENT})")
_PARTS: Final = re.compile(rf"({_MOMENT}|(?<![\w.-])[0-9][0-9,]*(?![\w.-]*\w))")


def _say_part(part: str) -> Markup:
    if re.fullmatch(_MOMENT, part):
        return _at(part)
    return Markup("<b>{}</b>").format(part) if part[:1].isdigit() else Markup("{}").format(part)


def relate(text: str, now: datetime) -> Markup:
    """Return a text whose past moments say how long ago they were, as in `it ended 3 min ago`.

    Moments to come are days and times.
    """
    parts = [Markup("{}").format(part) for part in _WHEN.split(text)]
    for place in range(1, len(parts), 2):
        moment = parse_moment(parts[place])
        if moment is not None:
            parts[place] = _ago(moment, now, " ago") if moment <= now else _day(moment)
    return Markup("").join(parts)


def _time(moment: datetime, text: str, form: str) -> Markup:
    """Return a moment; `text` has none of a user's words."""
    return Markup(f"{_stamp(moment)} data-{form}>{text}</time>")


@lru_cache(maxsize=STAMPS_MAX)
def _stamp(moment: datetime) -> str:
    known = moment.astimezone(UTC)
    stamp = known.isoformat(timespec="seconds").replace("+00:00", "Z")
    return f'<time datetime="{stamp}" title="{known:%d %b %Y, %H:%M:%S} UTC"'


def _ago(value: object, now: datetime, suffix: str = "") -> Markup:
    """Return how long ago a moment was; a dash for none."""
    moment = value if isinstance(value, datetime) else parse_moment(value)
    if moment is None:
        return Markup(NONE)
    return _time(moment, format_duration((now - moment).total_seconds()) + suffix, "ago")


def _left(moment: datetime, now: datetime) -> Markup:
    """Return how long it is until a moment, as a countdown, or since when it is overdue."""
    return _time(moment, format_due((moment - now).total_seconds()), "left")


def _due(moment: datetime, now: datetime) -> Markup:
    """Return in how long a moment is, or since when it is overdue."""
    return _time(moment, format_due((moment - now).total_seconds(), "in "), "due")


def _at(value: object) -> Markup:
    """Return the time of day of a moment."""
    moment = value if isinstance(value, datetime) else parse_moment(value)
    if moment is None:
        return Markup(NONE)
    return _time(moment, f"{moment.astimezone(UTC):%H:%M:%S}", "at")


def _day(moment: datetime) -> Markup:
    """Return the day and the time of a moment."""
    return _time(moment, f"{moment.astimezone(UTC):%d %b %H:%M:%S}", "day")


def _clock(seconds: float | None) -> str:
    return NONE if seconds is None else format_countdown(seconds)
