"""Every query of every dashboard has data in a real Prometheus beside a control plane at work."""

import re
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bus.harness import restart, until
from dashboards.agents import AGENTS
from dashboards.archive import ARCHIVE
from dashboards.console import CONSOLE
from dashboards.gateway import GATEWAY
from dashboards.nodes import NODES
from dashboards.page import Page, Variable
from dashboards.pages import PAGES
from dashboards.real_machines import REAL_MACHINES
from dashboards.system import SYSTEM
from nodepool.client import Client
from operations.observed import PATIENCE_S, observed
from operations.stories import prepare, tell
from support.grafana import filled, queries, queries_of
from support.prometheus import Prometheus, has_values

RATE = "8s"
CHOICES: Sequence[Mapping[str, str]] = (
    {"org": "acme", "cluster": "prod", "pool": "hurt"},
    {"org": "acme", "cluster": "prod", "pool": "kept"},
    {"org": "acme", "cluster": "prod", "pool": "greedy"},
    {"org": "acme", "cluster": "prod", "pool": "waiting"},
    {"org": "acme", "cluster": "prod", "pool": "training"},
    {"org": "umbrella", "cluster": "dev", "pool": "spot"},
)
"""The NodePools that are looked at, each of which is in another state."""
BEFORE = (
    "count(nodepool:nodepool_node_join_seconds_count:max == 0) == 4",
    "count(nodepool:nodepool_preemptions_total:max == 0) == 3",
)
"""What Prometheus has recorded before anything happens: what is counted begins at 0."""
SEEN = (
    'max_over_time(nodepool_unhealthy_nodes{pool="kept"}[10m]) > 0',
    "max_over_time(nodepool_preempting_nodes[10m]) > 0",
    "nodepool_silent_nodes > 0",
    "sum(nodepool_dead_letters_total) > 0",
    "sum(increase(gnatsd_varz_jetstream_stats_api_errors[10m])) > 0",
    "sum(nodepool:nodepool_refused_node_moves_total:max) > 0",
    "sum(nodepool:nodepool_invariant_violations_total:max) == 1",
    'nodepool_target_nodes{pool="training", org="acme"} == 4',
)
"""What Prometheus has read when everything has happened, before the server restarts."""
AFTER = "sum(nodepool_reconnects_total) > 0"
CHANGED = 'nodepool_target_nodes{pool="training", org="acme"} == 3'
COUNTED = (
    "nodepool:nodepool_node_join_seconds_count:max",
    "nodepool:nodepool_node_failures_total:max",
    "nodepool:nodepool_node_removals_total:max",
    "nodepool:nodepool_preemptions_total:max",
    "nodepool:nodepool_preemption_stages_total:max",
    "nodepool:nodepool_time_to_target_seconds_count:max",
)
"""What has grown from 0 while two services came to another leader."""
OF_AGENTS = "there is no Kubernetes here; tests/kube/test_agent_watched.py asks them beside one"
OF_GATEWAYS = "there are no accounts here; test_gateway_is_watched.py has some"
OF_ARCHIVERS = "nothing is archived here; bus/test_archiver.py reads these metrics"
OF_CONSOLES = "nobody looks at a console here; bus/test_console.py reads these metrics"
OF_MACHINES = "no machine is real here; flow/test_real_machines_are_shown.py reads these metrics"
EMPTY: Mapping[tuple[str, str, str], str] = {
    **{(asked.page, asked.panel, asked.ref): OF_AGENTS for asked in queries_of(SYSTEM, AGENTS)},
    **{(asked.page, asked.panel, asked.ref): OF_GATEWAYS for asked in queries_of(SYSTEM, GATEWAY)},
    **{(asked.page, asked.panel, asked.ref): OF_ARCHIVERS for asked in queries_of(SYSTEM, ARCHIVE)},
    **{(asked.page, asked.panel, asked.ref): OF_CONSOLES for asked in queries_of(SYSTEM, CONSOLE)},
    **{
        (asked.page, asked.panel, asked.ref): OF_MACHINES
        for asked in queries_of(NODES, REAL_MACHINES)
    },
    ("nodepool-system", "Memory of the servers", "B"): "the server is told no limit here",
}
"""Queries that have no series, and why."""
LATE = "a stage is late at its moment, which is two minutes after the warning"
SLOW = "a NodePool is slow when it takes more than 20 minutes to get its Nodes"
LOST = "a Pod is lost at the end of a preemption, seven minutes after the warning"
ZERO: Mapping[tuple[str, str, str], str] = {
    ("nodepool-fleet", "Preemptions late", "A"): LATE,
    ("nodepool-fleet", "How fast the error budget is used", "A"): SLOW,
    ("nodepool-fleet", "How fast the error budget is used", "B"): SLOW,
    ("nodepool-fleet", "How fast the error budget is used", "C"): SLOW,
    ("nodepool-nodes", "Share of stages late", "A"): LATE,
    ("nodepool-nodes", "Stages late", "A"): LATE,
    ("nodepool-nodes", "Pods lost to preemptions", "A"): LOST,
    ("nodepool-system", "Dead letters and failed replays", "B"): "every output can be folded",
    ("nodepool-system", "Slow consumers", "A"): "every client reads as fast as the server writes",
}
"""Queries of which nothing is above 0, and why: that something happens which they count would take
longer, or need a fault of the program."""
ANY: Mapping[tuple[str, str, str], str] = {
    ("nodepool-system", "Lost connections and new beginnings", "B"): "not each reconnect is one",
    ("nodepool-system", "Oldest message that waits", "A"): "a message may be processed at once",
    ("nodepool-system", "Read model behind", "A"): "a change may be written at once",
    ("nodepool-system", "Messages that wait", "A"): "a message may be processed at once",
    ("nodepool-system", "Read model", "A"): "a change may be written at once",
}
"""Queries that may be above 0 or not, as it happens."""


class Line(NamedTuple):
    """A query with the number of its series, and of those of them that were above 0.

    unnamed: the labels of its legend that none of its series has.
    """

    page: str
    panel: str
    ref: str
    expr: str
    series: int
    positive: int
    unnamed: frozenset[str]

    @property
    def place(self) -> tuple[str, str, str]:
        """Where the query stands."""
        return self.page, self.panel, self.ref


def counted(running: Prometheus, since: float) -> list[Line]:
    """Every query, for the choice for which most of its series are above 0."""
    end = time.time()
    since = end - int(end - since)  # So that the last step is now.
    lines = []
    for page in PAGES:
        for asked in queries(page):
            tried = []
            for chosen in choices(page):
                expr = filled(asked.expr, {**chosen, "__rate_interval": RATE}, int(end - since))
                found = (
                    running.query(expr)
                    if asked.instant
                    else running.query_range(expr, since, end, 1)
                )
                place = asked.page, asked.panel, asked.ref
                labels = {label for series in found for label in series["metric"]}
                unnamed = frozenset(re.findall(r"{{(\w+)}}", asked.legend)) - labels
                series, positive = has_values(found), has_values(found, above=0)
                tried.append(Line(*place, expr, series, positive, unnamed))
            lines.append(max(tried, key=lambda line: (line.positive, line.series)))
    return lines


def choices(page: Page) -> Sequence[Mapping[str, str]]:
    """What may be chosen on a dashboard: All, or one NodePool after the other."""
    whole = {variable.name: ".*" for variable in page.variables if variable.many}
    return [whole] if len(whole) == len(page.variables) else CHOICES


def offered(running: Prometheus, page: Page, variable: Variable) -> Sequence[str]:
    """The values of a variable."""
    match = re.fullmatch(r"label_values\((.+), (\w+)\)", variable.query)
    assert match is not None, variable.query
    return running.values(match[2], filled(match[1], choices(page)[0]))


@pytest.mark.timeout(600)
async def test_every_query_of_every_dashboard_has_data(tmp_path: Path) -> None:
    began = time.time()
    with observed(tmp_path) as it:
        running = it.prometheus

        # given a control plane to which everything happened
        await until(it.is_ready, PATIENCE_S)
        await prepare(it.server)
        for expr in BEFORE:
            await seen(running, expr)
        await tell(it)
        for expr in SEEN:
            await seen(running, expr)
        await restart(it.server)
        await until(it.is_ready, PATIENCE_S)
        await seen(running, AFTER)
        await until(lambda: bool(alerts(running)), PATIENCE_S)
        # So that a change of a target lies between two scrapes in any case.
        async with Client(it.server.url, org="acme", cluster="prod") as client:
            await client.nodepools.scale("training", 3)
        await seen(running, CHANGED)

        # when everything is asked for
        lines = counted(running, began)
        range_s = int(time.time() - began)
        grown = {name: running.query(f"{name}[{range_s}s]") for name in COUNTED}
        variables = {
            (page.uid, variable.name): offered(running, page, variable)
            for page in PAGES
            for variable in page.variables
        }
        pages = [running.page(address) for address in alerts(running)]

    sys.stdout.write(table(lines))
    # then each query has data, but for those that cannot, and it shows what has happened
    assert {line.place for line in lines if not line.series} == set(EMPTY)
    assert {line.place: line.unnamed for line in lines if line.series and line.unnamed} == {}
    flat = {line.place for line in lines if line.series and not line.positive}
    assert flat - set(ANY) == set(ZERO)
    assert {name for name, values in variables.items() if not values} == set()
    # and what was counted from 0 on has grown by all of it, whichever replica has shown it
    assert {name: increase(series) for name, series in grown.items()} == {
        name: last(series) for name, series in grown.items()
    }
    # and each alert that fires leads to its page
    assert all(page.startswith("# Nodepool") for page in pages)


def increase(found: Sequence[Mapping[str, Any]]) -> float:
    """How much all series have grown, as `increase()` has it without what it adds for the time
    before the first value and after the last one: a value that is lower has begun again at 0."""
    pairs = (pair for series in found for pair in pairwise(numbers(series)))
    return sum(after - before if after >= before else after for before, after in pairs)


def last(found: Sequence[Mapping[str, Any]]) -> float:
    """The last values of all series together."""
    return sum(numbers(series)[-1] for series in found)


def numbers(series: Mapping[str, Any]) -> Sequence[float]:
    """The values of a series over time."""
    return [float(value) for _, value in series["values"]]


async def seen(running: Prometheus, expr: str) -> None:
    """Waits until an expression has any series; the error names it."""
    try:
        await until(partial(is_seen, running, expr), PATIENCE_S)
    except TimeoutError:
        raise AssertionError(f"nothing was seen of {expr}") from None


def is_seen(running: Prometheus, expr: str) -> bool:
    """Whether an expression has any series now."""
    return bool(running.query(expr))


def alerts(running: Prometheus) -> Sequence[str]:
    """The paths of the pages of the alerts that fire."""
    found = running.get("/api/v1/alerts")["alerts"]
    return [
        alert["annotations"]["runbook_url"].removeprefix(running.url)
        for alert in found
        if alert["state"] == "firing"
    ]


def table(lines: Sequence[Line]) -> str:
    """The lines as text: series, those above 0, dashboard, panel, query."""
    return "".join(
        f"{line.series:4} {line.positive:4}  {line.page:16}  {line.panel} {line.ref}  {line.expr}\n"
        for line in lines
    )
