"""Where the events of one cluster are in the log."""

from collections.abc import Collection, Sequence
from functools import cache
from typing import Final

from nodepool.contract import events
from nodepool.contract.keys import token
from nodepool.contract.messages import Event

SINGLY_MAX: Final = 4
"""Up to this many kinds are looked for on subjects of their own; more, on those of their services:
the log is asked once for each subject."""


@cache
def event_kinds() -> dict[str, type[Event]]:
    """Return every event that somebody says, by name."""
    kinds = ((name, getattr(events, name)) for name in events.__all__)
    return {name: kind for name, kind in kinds if getattr(kind, "speaker", "")}


def subjects_of_events(
    names: Collection[str], org: str, cluster: str, pool: str = ""
) -> Sequence[str]:
    """Return the filters of the events of these names about a cluster, or one of its NodePools.

    Of more than `SINGLY_MAX` names, the filters also match other events of the same services.
    """
    kinds = event_kinds()
    place = f"{token(org)}.{token(cluster)}.{token(pool) if pool else '*'}"
    if len(names) <= SINGLY_MAX:
        return [f"np.evt.{kinds[name].speaker}.{place}.{name}" for name in sorted(set(names))]
    speakers = {kinds[name].speaker for name in names}
    # An event of every service has the filter `*`, which has the events of all others as well.
    return [f"np.evt.{each}.{place}.*" for each in sorted({"*"} & speakers or speakers)]
