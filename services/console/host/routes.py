"""Maps addresses to pages and forms."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from starlette.routing import compile_path

from console.host import actions, editing, organisation, pages, system
from console.host.rendering import Page
from console.host.visit import Visit

Show = Callable[[Visit], Awaitable[Page]]
Act = Callable[[Visit], Awaitable[actions.Outcome]]

PAGES: Final[Mapping[str, Show]] = {
    "/nodepools": pages.show_pools,
    "/nodepools/{cluster}/{name}": pages.show_pool,
    "/nodepools/{cluster}/{name}/yaml": pages.show_yaml,
    "/nodes/{cluster}/{name}": pages.show_node,
    "/events": pages.show_events,
    "/events/{cluster}/{position}": pages.show_event,
    "/preemptions": pages.show_preemptions,
    "/capacity": pages.show_capacity,
    "/organisation": organisation.show_organisation,
    "/system": system.show_system,
    "/fleet": system.show_fleet,
}
"""The pages that are kept up to date while they are open."""
STILL: Final = ("/nodepools/{cluster}/{name}/yaml", "/events/{cluster}/{position}", "/capacity")
"""The pages that show one moment, and are not updated."""
FORMS: Final[Mapping[str, Act]] = {
    "/create": actions.create,
    "/nodepools/{cluster}/{name}/edit": editing.edit,
    "/nodepools/{cluster}/{name}/scale": actions.scale,
    "/nodepools/{cluster}/{name}/delete": actions.delete,
    "/nodes/{cluster}/{name}/{verb}": actions.act,
    "/system/dead/{position}": system.replay,
}
"""The pages with a form, which carry out actions."""
OF_OPERATORS: Final[frozenset[Show | Act]] = frozenset(
    (system.show_system, system.show_fleet, system.replay)
)
"""The pages that the operator may see; all other pages belong to an organisation."""
PAST: Final = tuple(path for path, show in PAGES.items() if show not in OF_OPERATORS)
"""The pages that also show a moment of the past: all that belong to an organisation."""
_PAST_PATTERNS: Final = [compile_path(path)[0] for path in PAST]
_PATTERNS: Final = [(compile_path(path)[0], path) for path in PAGES if path not in STILL]


OF_ACTIONS: Final[frozenset[Show | Act]] = frozenset(FORMS.values())
OF_THE_PAST: Final[frozenset[Show | Act]] = frozenset(PAGES[path] for path in PAST)


def find_live(path: str) -> tuple[Show, Mapping[str, str]] | None:
    """Return the page at a path, with the values in the path; None if it is not kept live."""
    for pattern, name in _PATTERNS:
        if match := pattern.match(path):
            return PAGES[name], match.groupdict()
    return None


def has_past(path: str) -> bool:
    """Return whether the page at a path also shows a moment of the past."""
    return any(pattern.match(path) for pattern in _PAST_PATTERNS)
