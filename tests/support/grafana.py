"""What Grafana asks for with a dashboard: its queries, with the variables filled in."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dashboards.page import Page, Section
from dashboards.panels import Panel

RATE_INTERVAL_S = 20
"""At least four scrapes, as Grafana has it."""


class Asked(NamedTuple):
    """One query of a dashboard: where it stands, what it asks, and whether it is about now.

    legend: the name of each series, with labels as `{{label}}`.
    """

    page: str
    panel: str
    ref: str
    expr: str
    instant: bool
    legend: str = ""


def panels(page: Page) -> Iterator[Panel]:
    """Every panel of a dashboard."""
    for section in page.sections:
        yield from section.panels


def queries(page: Page) -> Iterator[Asked]:
    """Every query of every panel, and every annotation, as they stand in the dashboard."""
    for section in page.sections:
        yield from queries_of(page, section)
    for item in page.annotations:
        yield Asked(page.uid, f"mark: {item.name}", "Anno", item.expr, instant=False)


def queries_of(page: Page, section: Section) -> Iterator[Asked]:
    """Every query of every panel below one heading of a dashboard."""
    for panel in section.panels:
        for index, query in enumerate(panel.queries):
            ref = chr(ord("A") + index)
            yield Asked(page.uid, panel.title, ref, query.expr, query.instant, query.legend)


def filled(expr: str, chosen: Mapping[str, str], range_s: int = 3_600) -> str:
    """An expression with its variables; one with no value stays as it stands.

    Follows https://grafana.com/docs/grafana/latest/dashboards/variables/variable-syntax/.
    """
    known = {"__rate_interval": f"{RATE_INTERVAL_S}s", "__range": f"{range_s}s", **chosen}
    return re.sub(r"\$\{?(\w+)\}?", lambda match: known.get(match[1], match[0]), expr)


def everything(page: Page) -> Mapping[str, str]:
    """All, for each variable."""
    return {variable.name: ".*" for variable in page.variables}
