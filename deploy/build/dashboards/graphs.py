"""Panels that show what was: lines, heatmaps and bars of states over time."""

from collections.abc import Mapping, Sequence

from dashboards.panels import GREEN, JSON, NO_DATA, Panel, Query, Steps, texts


def lines(
    title: str,
    about: str,
    queries: Sequence[Query],
    *,
    unit: str = "short",
    width: int = 12,
    height: int = 8,
    stacked: bool = False,
    steps: Steps | None = None,
    stairs: bool = False,
    log: bool = False,
    empty: str = NO_DATA,
    links: Sequence[JSON] = (),
    columns: Sequence[JSON] = (),
    decimals: int | None = None,
) -> Panel:
    """Values over time; steps: lines at which there is something to do."""
    custom = {
        "drawStyle": "line",
        "lineInterpolation": "stepAfter" if stairs else "linear",
        "lineWidth": 1,
        "fillOpacity": 60 if stacked else 8,
        "showPoints": "auto",
        "pointSize": 4,
        "spanNulls": False,
        "axisSoftMin": 0,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if steps else "off"},
        "scaleDistribution": {"type": "log", "log": 10} if log else {"type": "linear"},
    }
    options = {
        "legend": {
            "displayMode": "table",
            "placement": "bottom",
            "showLegend": True,
            "calcs": ["lastNotNull", "max"],
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    rounded = {} if decimals is None else {"decimals": decimals}
    return Panel(
        "timeseries",
        title,
        about,
        queries,
        unit,
        width,
        height,
        options,
        custom,
        steps or ((None, GREEN),),
        "palette-classic",
        empty,
        defaults={"links": list(links), **rounded},
        columns=columns,
    )


def heatmap(
    title: str,
    about: str,
    expr: str,
    *,
    width: int = 12,
    empty: str = NO_DATA,
    exemplars: bool = False,
) -> Panel:
    """How often each duration was seen over time, from the buckets of a histogram.

    exemplars: whether traces are kept beside it.
    """
    options = {
        "calculate": False,
        "cellGap": 1,
        "cellValues": {"unit": "short", "decimals": 0},
        "color": {
            "mode": "scheme",
            "scheme": "Oranges",
            "fill": "dark-orange",
            "scale": "exponential",
            "exponent": 0.5,
            "steps": 64,
            "reverse": False,
        },
        "exemplars": {"color": "rgba(50, 116, 217, 0.9)"},
        # Cells with nothing in them stay empty.
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "showValue": "never",
        "tooltip": {"mode": "single", "yHistogram": True, "showColorScale": True},
        "yAxis": {"axisPlacement": "left", "unit": "s", "reverse": False},
    }
    custom = {"hideFrom": {"legend": False, "tooltip": False, "viz": False}}
    query = Query(expr, "{{le}}", exemplars=exemplars)
    return Panel(
        "heatmap",
        title,
        about,
        [query],
        "s",
        width,
        8,
        options,
        custom,
        empty=empty,
        form="heatmap",
    )


def timeline(
    title: str,
    about: str,
    expr: str,
    legend: str,
    shown: Mapping[str, tuple[str, str]],
    *,
    width: int = 24,
    height: int = 6,
    empty: str = NO_DATA,
) -> Panel:
    """States over time, a bar for each series; shown: the text and the color of each value."""
    options = {
        "alignValue": "left",
        "mergeValues": True,
        "rowHeight": 0.85,
        "showValue": "auto",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    return Panel(
        "state-timeline",
        title,
        about,
        [Query(expr, legend)],
        "short",
        width,
        height,
        options,
        {"fillOpacity": 80, "lineWidth": 0},
        empty=empty,
        defaults={"mappings": texts(shown)},
    )
