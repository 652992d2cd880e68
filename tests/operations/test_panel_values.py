"""What panels show of series that are known, as promtool computes it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from dashboards.page import Page
from dashboards.pages import PAGES
from dashboards.panels import Panel
from nodepool.contract.services import SERVICES
from operations.test_alerts import promtool
from support.grafana import everything, filled, panels

Series = Mapping[str, float | str]
"""A value that stays, or values as promtool has them, by series."""
MINUTES = 10
POOL = 'org="acme", nodepool_cluster="prod", pool="{}"'
TYPE = 'zone="Z", instance_type="T"'


def panel_of(uid: str, title: str) -> tuple[Page, Panel]:
    """The panel of this title on a dashboard, and the dashboard."""
    (page,) = (page for page in PAGES if page.uid == uid)
    (item,) = (item for item in panels(page) if item.title == title)
    return page, item


def query(uid: str, title: str, number: int = 0, **chosen: str) -> str:
    """A query of a panel; everything is chosen but what is given."""
    page, panel = panel_of(uid, title)
    known = {**everything(page), "__rate_interval": "5m", **chosen}
    return filled(panel.queries[number].expr, known, MINUTES * 60)


def check(folder: Path, expr: str, series: Series, expected: Series) -> None:
    """Fails unless the expression has these samples after MINUTES."""
    given = [
        {"series": name, "values": value if isinstance(value, str) else f"{value}x{MINUTES}"}
        for name, value in series.items()
    ]
    samples = [{"labels": labels, "value": value} for labels, value in expected.items()]
    asked = {"expr": expr, "eval_time": f"{MINUTES}m", "exp_samples": samples}
    case = {"interval": "1m", "input_series": given, "promql_expr_test": [asked]}
    file = folder / "test.yml"
    file.write_text(json.dumps({"evaluation_interval": "1m", "tests": [case]}))
    done = promtool("test", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


# Services.

EVERY = dict.fromkeys(SERVICES, 1)
REAL = {name: 1 for name in SERVICES if name != "fleet"}
"""The services where machines are real."""


def ready(services: Mapping[str, int]) -> Series:
    """One replica of each service, which is ready or not."""
    return {
        f'nodepool_ready{{nodepool_service="{name}", instance="{name}:1"}}': value
        for name, value in services.items()
    }


@pytest.mark.parametrize("uid", ["nodepool-fleet", "nodepool-system"])
@pytest.mark.parametrize(
    ("services", "missing"),
    [
        (EVERY, 0),
        (REAL, 0),
        ({**EVERY, "quota": 0}, 1),
        ({**EVERY, "fleet": 0}, 1),
        ({name: 1 for name in SERVICES if name != "quota"}, 1),
        ({**REAL, "mine": 1}, 0),
        ({"mine": 1}, len(REAL)),
        ({}, len(REAL)),
    ],
)
def test_a_service_that_prometheus_does_not_see_is_not_at_work(
    uid: str, services: Mapping[str, int], missing: int, tmp_path: Path
) -> None:
    check(tmp_path, query(uid, "Services not at work"), ready(services), {"{}": missing})


@pytest.mark.parametrize(
    ("connected", "is_ready", "leading", "text"),
    [
        (0, 0, 0, "not connected"),
        (0, 1, 0, "not connected"),
        (1, 0, 0, "not ready"),
        (1, 0, 1, "leads, not ready"),
        (1, 1, 0, "ready, stands by"),
        (1, 1, 1, "ready, leads"),
    ],
)
def test_a_replica_is_shown_as_it_is(
    connected: int, is_ready: int, leading: int, text: str, tmp_path: Path
) -> None:
    # given a replica
    labels = '{nodepool_service="quota", instance="q:1"}'
    series = {
        f"nodepool_connected{labels}": connected,
        f"nodepool_ready{labels}": is_ready,
        f"nodepool_leading{labels}": leading,
    }

    # when its number is one that is shown as this text
    _, panel = panel_of("nodepool-system", "Replicas")
    ((mapping,)) = cast("list[Mapping[str, Any]]", panel.defaults["mappings"])
    numbers = [number for number, shown in mapping["options"].items() if shown["text"] == text]
    number = connected + 2 * is_ready + 4 * leading

    # then that is what the query has
    assert str(number) in numbers
    check(tmp_path, query("nodepool-system", "Replicas"), series, {labels: number})


# NodePools.


def pool(name: str, target: int, current: int, reason: str) -> Series:
    """What metrics show of a NodePool."""
    labels = POOL.format(name)
    condition = f'type="AtTarget", status="False", reason="{reason}"'
    return {
        f'nodepool_info{{{labels}, {TYPE}, compute_class="default"}}': 1,
        f"nodepool_target_nodes{{{labels}}}": target,
        f"nodepool_current_nodes{{{labels}}}": current,
        f"nodepool_status_condition{{{labels}, {condition}}}": 1,
    }


FLEET = {
    **pool("short", 5, 3, "UnderTarget"),
    **pool("going", 4, 1, "PendingDelete"),
    **pool("well", 2, 2, "TargetMet"),
}
LISTED = "NodePools off target or being deleted"


@pytest.mark.parametrize(
    ("title", "value"),
    [("NodePools off target", 1), ("Nodes missing", 2), ("Nodes of the fleet", 7)],
)
def test_a_nodepool_that_is_being_deleted_wants_no_nodes(
    title: str, value: int, tmp_path: Path
) -> None:
    check(tmp_path, query("nodepool-fleet", title), FLEET, {"{}": value})


def test_the_table_has_nodepools_that_are_being_deleted(tmp_path: Path) -> None:
    rest = f'{TYPE}, compute_class="default"'
    targets = {
        f"{{{POOL.format('short')}, {rest}}}": 5,
        f"{{{POOL.format('going')}, {rest}}}": 4,
    }
    check(tmp_path, query("nodepool-fleet", LISTED), FLEET, targets)


def test_the_table_says_which_of_them_are_being_deleted(tmp_path: Path) -> None:
    _, panel = panel_of("nodepool-fleet", LISTED)
    reasons = {
        f'{{{POOL.format("short")}, attarget="UnderTarget"}}': 1,
        f'{{{POOL.format("going")}, attarget="PendingDelete"}}': 1,
    }
    check(tmp_path, query("nodepool-fleet", LISTED, len(panel.queries) - 1), FLEET, reasons)


@pytest.mark.parametrize(("name", "missing"), [("short", 2), ("going", -1), ("well", 0)])
def test_a_nodepool_misses_what_it_wants_and_has_not(
    name: str, missing: int, tmp_path: Path
) -> None:
    expr = query("nodepool-pool", "Missing", org="acme", cluster="prod", pool=name)
    check(tmp_path, expr, FLEET, {"{}": missing})


# Nodes.


def test_time_that_is_lost_is_shown_as_time_in_the_step_in_which_it_ends(tmp_path: Path) -> None:
    # given an hour that a Node was lost, which ends
    name = f'nodepool:nodepool_lost_node_seconds_total:max{{{TYPE}, cause="AdminReboot"}}'

    # then that is an hour, with what Prometheus 3 adds for a window that begins before a scrape
    expr = query("nodepool-nodes", "Time lost, by cause")
    shown = f"count by (cause) (({expr}) >= 3600 <= {3600 * 5 / 4})"
    check(tmp_path, shown, {name: "0x7 3600x5"}, {'{cause="AdminReboot"}': 1})


def test_the_nodepools_with_idle_nodes_are_shown_with_how_many_are_idle(tmp_path: Path) -> None:
    # given a NodePool with idle Nodes, and another one without
    held = {"hoards": (3, 1), "works": (0, 4)}
    series: dict[str, float | str] = {}
    for name, (idle, active) in held.items():
        series |= pool(name, 4, 4, "TargetMet")
        series[f"nodepool_idle_nodes{{{POOL.format(name)}}}"] = idle
        series[f"nodepool_active_nodes{{{POOL.format(name)}}}"] = active

    # then only the first NodePool is in the table, with both numbers
    row = f'{{{POOL.format("hoards")}, {TYPE}, compute_class="default"}}'
    title = "NodePools with idle Nodes"
    check(tmp_path, query("nodepool-fleet", title), series, {row: 3})
    check(tmp_path, query("nodepool-fleet", title, 1), series, {row: 1})
    by_org = query("nodepool-fleet", "Idle Nodes by organisation and type")
    check(tmp_path, by_org, series, {'{org="acme", instance_type="T"}': 3})
    share = query("nodepool-fleet", "Share of Nodes that are active, by type")
    check(tmp_path, share, series, {'{instance_type="T"}': 5 / 8})


@pytest.mark.parametrize(("slow", "left"), [(0, 1), (0.04, 0.2), (0.1, -1)])
def test_the_error_budget_is_what_the_objective_allows(
    slow: float, left: float, tmp_path: Path
) -> None:
    series = {f"nodepool:time_to_target_slow:ratio_rate30d{{{TYPE}}}": slow}
    shown = f"round({query('nodepool-fleet', 'Error budget left')}, 0.01)"
    check(tmp_path, shown, series, {f"{{{TYPE}}}": left})


# Processes.


def test_the_figures_of_each_process_of_services_are_shown_once(tmp_path: Path) -> None:
    target = 'instance="q:1", job="nodepool", service="services-1"'
    series: Series = {
        f'nodepool_build_info{{{target}, nodepool_service="quota", version="1"}}': 1,
        f'nodepool_build_info{{{target}, nodepool_service="validator", version="1"}}': 1,
        f"process_resident_memory_bytes{{{target}}}": 50,
        f"process_cpu_seconds_total{{{target}}}": "0+30x10",
        'process_resident_memory_bytes{instance="p:1", job="prometheus"}': 900,
    }
    row = f"{{{target}}}"
    of_memory = {f"process_resident_memory_bytes{row}": 50}
    check(tmp_path, query("nodepool-system", "Memory by replica"), series, of_memory)
    check(tmp_path, query("nodepool-system", "Processor time by replica"), series, {row: 0.5})


# Alerts and storage.


def test_what_is_only_for_graphs_does_not_count_as_an_alert(tmp_path: Path) -> None:
    series = {
        f'ALERTS{{alertname="Nodepool{name}", alertstate="{state}", severity="{severity}"}}': 1
        for name, state, severity in (
            ("InputsWait", "firing", "critical"),
            ("WaitsForMachines", "firing", "warning"),
            ("QuotaNearlyUsed", "firing", "info"),
            ("DeadLetters", "pending", "warning"),
        )
    }
    check(tmp_path, query("nodepool-fleet", "Alerts firing"), series, {"{}": 2})


@pytest.mark.parametrize(("limit", "shares"), [(100, {"{}": 0.95}), (0, {})])
def test_the_share_of_the_storage_is_shown_where_something_may_be_stored(
    limit: int, shares: Series, tmp_path: Path
) -> None:
    series = {"nodepool_storage_used_bytes": 95, "nodepool_storage_limit_bytes": limit}
    check(tmp_path, query("nodepool-system", "Storage used"), series, shares)


# Usage.


@pytest.mark.parametrize(
    ("changed_s", "expected"),
    [
        # The series begin with the epoch, and are looked at after ten minutes.
        (0, 2 + 3 * MINUTES / 60),
        (300, 2 + 3 * 5 / 60),
        # A change before the month began: only the Nodes of then count, since it began.
        (-86_400, 3 * MINUTES / 60),
    ],
)
def test_the_hours_of_the_month_go_on_without_a_message(
    changed_s: int, expected: float, tmp_path: Path
) -> None:
    # given Nodes whose use last changed at a moment, and two hours that were counted up to then
    labels = 'org="acme", instance_type="T", use="{}", instance="a:1", job="nodepool"'
    series: Series = {
        f"nodepool_nodes_by_use{{{labels.format('used')}}}": 3,
        f"nodepool_node_use_seconds{{{labels.format('used')}}}": 7_200,
        'nodepool_node_use_timestamp_seconds{instance="a:1", job="nodepool"}': changed_s,
    }

    expr = query("nodepool-fleet", "Node-hours of this month")

    check(tmp_path, expr, series, {'{org="acme", instance_type="T"}': expected})
