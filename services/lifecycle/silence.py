"""Silent Nodes: those whose condition Ready is Unknown, and when that makes them unhealthy.

A silence makes a Node unhealthy once it has lasted for some minutes, and the service that observes
the Node has confirmed it after that: a service that is away confirms nothing. A widespread silence
makes no Node unhealthy. Kubernetes has the same rules for its zones, see
https://kubernetes.io/docs/concepts/architecture/nodes/#rate-limits-on-eviction.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple, assert_never

from immutables import Map

from lifecycle import ConditionObserved
from nodepool.contract.events import CWNodeCordoned, NodeReportRequested, NodeSilent
from nodepool.contract.health import CAUSES, cordon_cause, is_problem
from nodepool.contract.keys import MachineKey

READY: Final = CAUSES["kubelet"].type
"""The condition of which a silent Node has the status Unknown."""
UNHEALTHY_AFTER: Final = timedelta(minutes=5)
"""How long a Node is silent until it is unhealthy, unless a setting says otherwise."""
FEW: Final = 3
"""Fewer silent Nodes than this are no widespread silence."""
BEGINS_AT: Final = 0.55
"""The share of silent Nodes from which on a silence is widespread."""
ENDS_BELOW: Final = 0.5
"""The share of silent Nodes below which a silence is no longer widespread."""


class Silence(NamedTuple):
    """The silence of a Node.

    since: from when its time counts.
    ask_at: when that time is over; None before the time was published and after the question.
    request: the number of the question whether it goes on; 0 before that.
    is_lasting: whether it makes the Node unhealthy.
    is_excused: whether it is part of a widespread silence.
    """

    since: datetime
    ask_at: datetime | None = None
    request: int = 0
    is_lasting: bool = False
    is_excused: bool = False

    @property
    def is_new(self) -> bool:
        """Whether its time was not published yet."""
        is_known = self.ask_at is not None or self.request or self.is_lasting
        return not (is_known or self.is_excused)

    def confirmed(self, request: int) -> "Silence":
        """Return the silence after a report that the Node is silent, with this number."""
        is_answer = request > 0 and request == self.request and not self.is_excused
        return self._replace(is_lasting=True) if is_answer else self

    def followed(self, event: NodeSilent | NodeReportRequested) -> "Silence":
        """Return the silence after its time was published, or a question whether it goes on."""
        match event:
            case NodeSilent(unhealthy_at=moment):
                return self._replace(ask_at=moment)
            case NodeReportRequested(request=request):
                return self._replace(ask_at=None, request=request)
            case _:
                assert_never(event)

    def cordoned(self, event: CWNodeCordoned) -> "Silence":
        """Return the silence after a cordon; an older release cordoned a silent Node at once."""
        is_cause = cordon_cause(READY) in event.cause.split(",") and not self.is_excused
        return self._replace(is_lasting=True) if is_cause else self

    def repeated(self) -> "Silence":
        """Return the silence of a Node that begins to reboot: its time counts again after that."""
        return self._replace(ask_at=None, request=0)

    def excused(self, now: datetime, *, is_excused: bool) -> "Silence":
        """Return the silence at the beginning or the end of a widespread silence."""
        since = self.since if is_excused else now
        return Silence(since, is_excused=is_excused)


def silence_after(
    before: Silence | None, event: ConditionObserved, now: datetime
) -> Silence | None:
    """Return the silence of a Node after a report of its condition Ready; None without one."""
    if not is_problem(event.type, event.status):
        return None
    return Silence(now) if before is None else before.confirmed(event.request)


class Area(NamedTuple):
    """The Nodes of a zone, or of a cluster, that have joined their cluster.

    nodes: how many Nodes there are.
    silent: those that are silent.
    is_silent: whether their silence is widespread.
    """

    nodes: int = 0
    silent: Map[MachineKey, bool] = Map()
    is_silent: bool = False


Areas = Map[str, Area]
"""The zones and the clusters that have Nodes, by their keys."""


class Standing(NamedTuple):
    """What a Node counts for: the areas it is in, and whether it is silent."""

    areas: tuple[str, ...]
    is_silent: bool


def moved(
    areas: Areas, key: MachineKey, before: Standing | None, after: Standing | None
) -> tuple[Areas, frozenset[str]]:
    """Return the areas after a Node changed, and those whose silence became or ceased to be wide.

    before, after: None where the Node does not count.
    """
    turned = set()
    for name in sorted({*(before.areas if before else ()), *(after.areas if after else ())}):
        known = areas.get(name, Area())
        area = _without(known, key) if before and name in before.areas else known
        area = _with(area, key, after) if after and name in after.areas else area
        area = area._replace(is_silent=_is_widespread(area))
        areas = areas.set(name, area) if area.nodes else areas.delete(name)
        if area.is_silent is not known.is_silent:
            turned.add(name)
    return areas, frozenset(turned)


def silent_in(areas: Areas, names: frozenset[str]) -> Iterator[MachineKey]:
    """Yield the silent Nodes of these areas, each once, in the order of their names."""
    yield from sorted({key for name in names for key in areas.get(name, Area()).silent})


def is_excused(areas: Areas, names: tuple[str, ...]) -> bool:
    """Return whether the silence of one of these areas is widespread."""
    return any(areas.get(name, Area()).is_silent for name in names)


def _without(area: Area, key: MachineKey) -> Area:
    silent = area.silent.delete(key) if key in area.silent else area.silent
    return area._replace(nodes=area.nodes - 1, silent=silent)


def _with(area: Area, key: MachineKey, standing: Standing) -> Area:
    silent = area.silent.set(key, True) if standing.is_silent else area.silent
    return area._replace(nodes=area.nodes + 1, silent=silent)


def _is_widespread(area: Area) -> bool:
    share = ENDS_BELOW if area.is_silent else BEGINS_AT
    return len(area.silent) >= max(FEW, share * area.nodes)
