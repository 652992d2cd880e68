"""What states count is recorded once for all replicas, and read as it is recorded."""

import re
from pathlib import Path

import pytest
import yaml

from dashboards.page import Page
from dashboards.pages import PAGES
from monitoring.recorded import RECORDED, recording_rules
from monitoring.rules import RULES
from operations.test_alerts import promtool
from support.grafana import queries

HERE = Path(__file__).parent
RUNBOOKS = RULES.parents[1] / "runbooks"
GROUP = "nodepool-states"
RAW = re.compile(rf"(?<![\w:])({'|'.join(it.name for it in RECORDED)})(?!:)")
"""A counter of a state as a replica exports it."""


def test_every_counter_of_a_state_is_recorded_and_all_other_rules_read_that() -> None:
    groups = {it["name"]: it for it in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]}
    assert groups.pop(GROUP)["rules"] == recording_rules()
    rest = [rule for group in groups.values() for rule in group["rules"]]
    assert [rule for rule in rest if RAW.search(rule["expr"])] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.uid)
def test_a_panel_reads_what_is_recorded(page: Page) -> None:
    assert [asked for asked in queries(page) if RAW.search(asked.expr)] == []


def test_a_runbook_asks_for_what_is_recorded() -> None:
    asked = [
        line
        for page in sorted(RUNBOOKS.glob("*.md"))
        for line in page.read_text(encoding="utf-8").splitlines()
        if RAW.search(line) and re.search(r"(rate|increase|delta)\(", line)
    ]
    assert asked == []


def test_an_increase_is_neither_lost_nor_counted_twice() -> None:
    done = promtool("test", "rules", str(HERE / "recorded.yml"))
    assert done.returncode == 0, done.stdout + done.stderr
