"""The kinds of panels: what Grafana needs of each, with the choices that are the same everywhere.

The options are those of the panel types in https://www.npmjs.com/package/@grafana/schema, against
which `tests/operations/long/test_grafana_schema.py` checks the dashboards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

JSON = Mapping[str, object]

DATASOURCE: Final[JSON] = {"type": "prometheus", "uid": "${datasource}"}
GREEN, YELLOW, ORANGE, RED, BLUE, GREY = "green", "yellow", "orange", "red", "blue", "text"
Steps = Sequence[tuple[float | None, str]]
"""From which value on there is which color; None is the lowest."""
NEUTRAL: Final[Steps] = ((None, BLUE),)
ANY_IS_BAD: Final[Steps] = ((None, GREEN), (1, RED))
ANY_IS_A_WARNING: Final[Steps] = ((None, GREEN), (1, ORANGE))
NO_DATA: Final = "no data"


@dataclass(frozen=True, slots=True)
class Query:
    """A query of a panel.

    legend: the name of each series, with labels as `{{label}}`.
    instant: whether only the newest value is asked for.
    exemplars: whether the traces behind a histogram are asked for too.
    """

    expr: str
    legend: str = ""
    instant: bool = False
    exemplars: bool = False

    def document(self, ref: str, form: str) -> JSON:
        """Return the JSON of the query; `form` is "time_series", "table" or "heatmap"."""
        return {
            "refId": ref,
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": self.expr,
            "legendFormat": self.legend,
            "format": form,
            "instant": self.instant,
            "range": not self.instant,
            "exemplar": self.exemplars,
        }


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel.

    kind: its type in Grafana. unit: of its values, see
    https://grafana.com/docs/grafana/latest/panels-visualizations/configure-standard-options/#unit.
    empty: what it shows where there is no series. options, custom: those of its type.
    defaults: further ones for all of its fields. columns: what differs for single ones.
    """

    kind: str
    title: str
    about: str
    queries: Sequence[Query]
    unit: str
    width: int
    height: int
    options: JSON
    custom: JSON = field(default_factory=dict)
    steps: Steps = NEUTRAL
    color: str = "thresholds"
    empty: str = NO_DATA
    form: str = "time_series"
    defaults: JSON = field(default_factory=dict)
    columns: Sequence[JSON] = ()
    transformations: Sequence[JSON] = ()

    def document(self) -> JSON:
        """Return the JSON of the panel, without its id and place."""
        refs = (chr(ord("A") + index) for index in range(len(self.queries)))
        queries = zip(self.queries, refs, strict=True)
        return {
            "type": self.kind,
            "title": self.title,
            "description": self.about,
            "datasource": DATASOURCE,
            "targets": [query.document(ref, self.form) for query, ref in queries],
            "options": self.options,
            "fieldConfig": {
                "defaults": {
                    "unit": self.unit,
                    "noValue": self.empty,
                    "color": {"mode": self.color},
                    "thresholds": {"mode": "absolute", "steps": thresholds(self.steps)},
                    "custom": self.custom,
                    **self.defaults,
                },
                "overrides": list(self.columns),
            },
            "transformations": list(self.transformations),
        }


def thresholds(steps: Steps) -> Sequence[JSON]:
    """Thresholds as Grafana has them."""
    return [{"value": value, "color": color} for value, color in steps]


def override(column: str, **properties: object) -> JSON:
    """Return the properties of a field that differ; `__` in a property's name stands for a dot."""
    return {
        "matcher": {"id": "byName", "options": column},
        "properties": [
            {"id": name.replace("__", "."), "value": value} for name, value in properties.items()
        ],
    }


def texts(values: Mapping[str, tuple[str, str]]) -> Sequence[JSON]:
    """Return the mapping of single values to the text and color that a panel shows instead."""
    shown = {
        value: {"text": text, "color": color, "index": index}
        for index, (value, (text, color)) in enumerate(values.items())
    }
    return [{"type": "value", "options": shown}]


def link(title: str, uid: str, **variables: str) -> JSON:
    """Return a link from a value to another dashboard, with the same time and these variables."""
    query = "".join(f"&var-{name}={value}" for name, value in variables.items())
    address = f"/d/{uid}?${{__url_time_range}}&var-datasource=${{datasource}}{query}"
    return {"title": title, "url": address, "targetBlank": False}
