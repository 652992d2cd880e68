"""The dashboards in deploy/grafana are those of deploy/build/dashboards, and whole."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dashboards.page import COLUMNS, Page
from dashboards.pages import FOLDER, PAGES, text
from dashboards.panels import BLUE, GREEN, NO_DATA
from nodepool.contract import metrics
from nodepool.contract.agent_metrics import OF_THE_AGENT
from nodepool.contract.archive_metrics import OF_THE_ARCHIVER
from nodepool.contract.console_metrics import OF_THE_CONSOLE
from nodepool.contract.gateway_metrics import OF_THE_GATEWAY
from nodepool.contract.metal_metrics import OF_THE_DRIVER
from support.grafana import everything, filled, panels, queries

EACH = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.uid)
BUILT_IN = {"datasource", "__rate_interval", "__range", "__url_time_range", "__data", "__field"}
UIDS = ["nodepool-fleet", "nodepool-pool", "nodepool-nodes", "nodepool-system"]


def test_the_files_are_those_of_the_builder() -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
    assert written == {f"{page.uid}.json": text(page) for page in PAGES}, "run `make dashboards`"


def test_the_names_in_addresses_stay_as_they_are() -> None:
    assert [page.uid for page in PAGES] == UIDS


@EACH
def test_every_panel_says_what_it_shows_and_what_it_shows_without_data(page: Page) -> None:
    silent = [
        panel.title
        for panel in panels(page)
        if not (panel.title and panel.about.endswith((".", "`.")) and panel.unit and panel.empty)
    ]
    assert silent == []


@EACH
def test_what_is_well_where_there_is_nothing_is_not_shown_in_a_color_of_alarm(page: Page) -> None:
    # given the numbers for which it means something that there is no series
    meant = [panel for panel in panels(page) if panel.kind == "stat" and panel.empty != NO_DATA]

    # then the color of no value, which is that of the lowest step, is a calm one
    assert [panel.title for panel in meant if panel.steps[0][1] not in (GREEN, BLUE)] == []


@EACH
def test_no_title_stands_twice_in_a_section(page: Page) -> None:
    for section in page.sections:
        titles = [panel.title for panel in section.panels]
        assert sorted(titles) == sorted(set(titles))


@EACH
def test_the_series_of_a_panel_with_several_have_names(page: Page) -> None:
    nameless = [
        panel.title
        for panel in panels(page)
        for query in panel.queries
        if panel.kind not in ("stat", "table") and not query.legend
    ]
    assert nameless == []


@EACH
def test_a_page_has_no_gaps_and_no_panel_lies_on_another(page: Page) -> None:
    # given the places of all panels
    shown = json.loads(text(page))["panels"]
    places = [panel["gridPos"] for panel in shown]

    # then every cell of the grid is taken once, and none is beside it
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert len(cells) == COLUMNS * (max(y for _, y in cells) + 1)
    assert max(x for x, _ in cells) < COLUMNS
    assert sorted(panel["id"] for panel in shown) == list(range(1, len(shown) + 1))


@EACH
def test_every_variable_in_a_query_can_be_chosen(page: Page) -> None:
    known = {variable.name for variable in page.variables} | BUILT_IN
    used = set(re.findall(r"\$\{?([a-z_]+)", text(page))) - {"__all"}
    assert used <= known


@EACH
def test_every_link_leads_to_a_dashboard_and_sets_what_it_knows(page: Page) -> None:
    # given the variables of every dashboard
    known = {page.uid: {"datasource", *(each.name for each in page.variables)} for page in PAGES}

    # when the links of this one are followed
    links = re.findall(r'"url": "/d/([\w-]+)\?([^"]*)"', text(page))

    # then there is such a dashboard, and it has such variables
    for uid, query in links:
        assert set(re.findall(r"var-(\w+)=", query)) <= known[uid]


def test_every_metric_is_on_a_dashboard() -> None:
    drawn = "".join(text(page) for page in PAGES)
    missing = [
        item.name
        for item in (
            *metrics.ALL,
            *OF_THE_AGENT,
            *OF_THE_GATEWAY,
            *OF_THE_ARCHIVER,
            *OF_THE_CONSOLE,
            *OF_THE_DRIVER,
        )
        if not re.search(rf"\b{item.name}", drawn)
    ]
    assert missing == []


def test_prometheus_can_read_every_query(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool on PATH")

    # given every query as a rule
    rules = [
        {"record": "x", "expr": filled(asked.expr, everything(page)), "labels": {"ref": ref}}
        for page in PAGES
        for number, asked in enumerate(queries(page))
        for ref in [f"{page.uid} {number}"]
    ]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))

    # when they are checked
    done = subprocess.run(
        [promtool, "check", "rules", str(file)], capture_output=True, text=True, check=False
    )

    # then all can be read
    assert (done.returncode, done.stderr) == (0, "")
    assert f"SUCCESS: {len(rules)} rules found" in done.stdout
