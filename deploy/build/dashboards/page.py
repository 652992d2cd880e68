"""A dashboard as Grafana reads it from a file, in the classic model of its JSON.

The model is that of https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/
with the schema version of Grafana 11; later releases migrate it when they load it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from dashboards.panels import DATASOURCE, JSON, Panel

SCHEMA_VERSION: Final = 41
COLUMNS: Final = 24
TAG: Final = "nodepool"


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice at the top of a dashboard.

    name, label: for queries and for people. query: the values, as `label_values(...)`.
    many: whether several may be chosen, and All.
    """

    name: str
    label: str
    query: str
    many: bool = True


@dataclass(frozen=True, slots=True)
class Annotation:
    """Marks in all graphs where the expression has a value other than 0."""

    name: str
    expr: str
    color: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Section:
    """Panels below a heading; they fill lines of 24 columns from the left."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True)
class Page:
    """A dashboard. uid: its name in addresses, which never changes."""

    uid: str
    title: str
    description: str
    variables: Sequence[Variable]
    annotations: Sequence[Annotation]
    sections: Sequence[Section]
    since: str = "now-6h"


def document(page: Page) -> JSON:
    """Return the JSON of a dashboard."""
    return {
        "uid": page.uid,
        "title": page.title,
        "description": page.description,
        "tags": [TAG],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "time": {"from": page.since, "to": "now"},
        "refresh": "30s",
        "timepicker": {"refresh_intervals": ["10s", "30s", "1m", "5m", "15m"]},
        "links": [_all_dashboards()],
        "templating": {"list": [_datasource(), *map(_variable, page.variables)]},
        "annotations": {"list": [*map(_annotation, page.annotations)]},
        "panels": list(_panels(page.sections)),
    }


def _all_dashboards() -> JSON:
    """Return the links to the other dashboards, which keep the time and the variables."""
    return {
        "type": "dashboards",
        "title": "Node pools",
        "tags": [TAG],
        "asDropdown": False,
        "icon": "external link",
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "tooltip": "",
    }


def _datasource() -> JSON:
    return {
        "type": "datasource",
        "name": "datasource",
        "label": "Prometheus",
        "query": "prometheus",
        "regex": "",
        "hide": 0,
        "refresh": 1,
        "includeAll": False,
        "multi": False,
        "options": [],
    }


def _variable(item: Variable) -> JSON:
    everything = {"text": "All", "value": "$__all"}
    return {
        "type": "query",
        "name": item.name,
        "label": item.label,
        "datasource": DATASOURCE,
        # 1 is a query for the values of a label, as the editor stores it.
        "query": {"qryType": 1, "query": item.query, "refId": f"Variable-{item.name}"},
        "regex": "",
        "hide": 0,
        # When the time range changes: what is gone by now existed then.
        "refresh": 2,
        "sort": 1,
        "multi": item.many,
        "includeAll": item.many,
        "options": [],
        # Not one alternative for each value: addresses and queries would grow with the fleet.
        **({"allValue": ".*", "current": everything} if item.many else {}),
    }


def _annotation(item: Annotation) -> JSON:
    return {
        "name": item.name,
        "enable": True,
        "hide": False,
        "iconColor": item.color,
        "datasource": DATASOURCE,
        "target": {"refId": "Anno", "expr": item.expr, "interval": "", "range": True},
        "titleFormat": item.title,
        "textFormat": item.text,
        "useValueForTime": False,
    }


def _panels(sections: Iterable[Section]) -> Iterator[JSON]:
    number, top = 0, 0
    for section in sections:
        number += 1
        yield {
            "type": "row",
            "id": number,
            "title": section.title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1},
        }
        top += 1
        left, tallest = 0, 0
        for panel in section.panels:
            if left + panel.width > COLUMNS:
                left, top, tallest = 0, top + tallest, 0
            number += 1
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            yield {"id": number, "gridPos": place, **panel.document()}
            left, tallest = left + panel.width, max(tallest, panel.height)
        top += tallest
