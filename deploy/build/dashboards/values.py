"""Panels that show what is: numbers, bars and tables."""

from collections.abc import Mapping, Sequence

from dashboards.panels import GREY, JSON, NEUTRAL, NO_DATA, Panel, Query, Steps


def _build_reduction(calc: str) -> JSON:
    return {"calcs": [calc], "fields": "", "values": False}


def stat(
    title: str,
    about: str,
    expr: str,
    *,
    unit: str = "short",
    steps: Steps = NEUTRAL,
    empty: str = NO_DATA,
    width: int = 4,
    height: int = 4,
    graph: bool = True,
    links: Sequence[JSON] = (),
    mappings: Sequence[JSON] = (),
    decimals: int | None = 0,
) -> Panel:
    """One number; `graph` shows how it came about, and its query is then one over time."""
    options = {
        "reduceOptions": _build_reduction("lastNotNull"),
        "colorMode": "background" if steps != NEUTRAL else "value",
        "graphMode": "area" if graph else "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "textMode": "value",
        "wideLayout": True,
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
    }
    rounded = {} if decimals is None else {"decimals": decimals}
    return Panel(
        "stat",
        title,
        about,
        [Query(expr, instant=not graph)],
        unit,
        width,
        height,
        options,
        steps=steps,
        empty=empty,
        defaults={**rounded, "links": list(links), "mappings": list(mappings)},
    )


def bars(
    title: str,
    about: str,
    expr: str,
    legend: str,
    *,
    unit: str = "percentunit",
    steps: Steps = NEUTRAL,
    top: float | None = None,
    width: int = 12,
    height: int = 8,
    empty: str = NO_DATA,
) -> Panel:
    """One bar for each series, now; top: the value of a full bar."""
    options = {
        "displayMode": "basic",
        "orientation": "horizontal",
        "reduceOptions": _build_reduction("lastNotNull"),
        "showUnfilled": True,
        "valueMode": "color",
        "namePlacement": "auto",
        "sizing": "auto",
        "minVizHeight": 16,
        "minVizWidth": 8,
        "maxVizHeight": 40,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []},
    }
    return Panel(
        "bargauge",
        title,
        about,
        [Query(expr, legend, instant=True)],
        unit,
        width,
        height,
        options,
        steps=steps,
        empty=empty,
        defaults={"min": 0, **({} if top is None else {"max": top})},
    )


def table(
    title: str,
    about: str,
    queries: Mapping[str, str],
    *,
    names: Mapping[str, str],
    unshown: Sequence[str] = (),
    columns: Sequence[JSON] = (),
    sort: str = "",
    width: int = 24,
    height: int = 9,
    empty: str = NO_DATA,
) -> Panel:
    """Return a table with one row per set of labels that the queries share.

    queries: an expression for each column of values. names: the heading of each label, in order;
    the values follow. unshown: further queries, of which only the labels are shown.
    """
    exprs = [*queries.values(), *unshown]
    # With one query alone its column is `Value`; with several they are `Value #A` and so on.
    values = [f"Value #{chr(ord('A') + index)}" for index in range(len(exprs))]
    values = values if len(values) > 1 else ["Value"]
    headings = {**names, **dict(zip(values, queries, strict=False))}
    organize = {
        "excludeByName": dict.fromkeys(("Time", *values[len(queries) :]), True),
        "indexByName": {name: index for index, name in enumerate(headings)},
        "renameByName": headings,
    }
    sorting = [{"displayName": sort, "desc": True}] if sort else []
    return Panel(
        "table",
        title,
        about,
        [Query(expr, instant=True) for expr in exprs],
        "short",
        width,
        height,
        {"showHeader": True, "cellHeight": "sm", "frameIndex": 0, "sortBy": sorting},
        {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False, "filterable": True},
        steps=((None, GREY),),
        empty=empty,
        form="table",
        columns=columns,
        transformations=[
            {"id": "merge", "options": {}},
            {"id": "organize", "options": organize},
        ],
    )
