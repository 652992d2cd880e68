"""The alerts are whole: each says what to do, is tried in both ways, and names what there is."""

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodepool.contract import metrics
from nodepool.contract.agent_metrics import OF_THE_AGENT
from nodepool.contract.archive_metrics import OF_THE_ARCHIVER
from nodepool.contract.console_metrics import OF_THE_CONSOLE
from nodepool.contract.gateway_metrics import OF_THE_GATEWAY
from nodepool.contract.invariants import RULES as RULES_THAT_HOLD
from nodepool.contract.metal_metrics import OF_THE_DRIVER
from nodepool.contract.metrics import SERVICE_LABEL
from nodepool.contract.node_failures import INTENDED, NodeFailure
from nodepool.contract.services import EVERY, SERVICES

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "prometheus"
RULES = FOLDER / "nodepool.rules.yml"
RUNBOOKS = ROOT / "deploy" / "runbooks"
TRIED = ROOT / "tests" / "operations" / "alerts"
SUFFIXES = ("_bucket", "_sum", "_count", "")


def rules() -> Sequence[Mapping[str, Any]]:
    """Every rule, recording ones included."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


ALERTS = {rule["alert"]: rule for rule in rules() if "alert" in rule}
EACH = pytest.mark.parametrize("name", ALERTS)


def promtool(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs promtool; skips the test where there is none."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("there is no promtool on PATH")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def test_prometheus_can_read_the_rules() -> None:
    done = promtool("check", "rules", str(RULES))
    assert (done.returncode, done.stderr) == (0, "")
    assert f"SUCCESS: {len(rules())} rules found" in done.stdout


@EACH
def test_an_alert_says_how_bad_it_is_and_what_to_do(name: str) -> None:
    alert = ALERTS[name]
    notes = alert["annotations"]
    assert alert["labels"]["severity"] in ("critical", "warning", "info")
    assert sorted(notes) == ["description", "runbook_url", "summary"]
    assert notes["runbook_url"] == f"{{{{ $externalURL }}}}/user/{name}.md"
    assert notes["description"].endswith(".")
    assert not notes["summary"].endswith(".")


@EACH
def test_an_alert_says_how_much_or_what(name: str) -> None:
    notes = ALERTS[name]["annotations"]
    assert re.search(r"\{\{ \$(value|labels\.)", notes["summary"] + notes["description"])


def test_no_two_alerts_have_one_name() -> None:
    names = [rule["alert"] for rule in rules() if "alert" in rule]
    assert sorted(names) == sorted(set(names))


@EACH
def test_an_alert_is_tried_where_it_fires_and_where_it_does_not(name: str) -> None:
    # given what promtool tries of it
    tried = yaml.safe_load((TRIED / f"{name}.yml").read_text(encoding="utf-8"))["tests"]
    cases = [(each["name"], check) for each in tried for check in each["alert_rule_test"]]
    assert {check["alertname"] for _, check in cases} == {name}

    # then there is a case of each
    fires = {case.split()[0] for case, check in cases if check.get("exp_alerts")}
    quiet = {case.split()[0] for case, check in cases if not check.get("exp_alerts")}
    assert (fires, quiet) == ({"fires"}, {"is"})


def test_nothing_is_tried_that_is_no_alert() -> None:
    assert {path.stem for path in TRIED.iterdir()} == set(ALERTS)


def test_every_alert_has_its_page_and_every_page_its_alert() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == {*ALERTS, "README"}


def test_the_rules_name_metrics_and_labels_that_there_are() -> None:
    # given the labels of each series that a service may show
    known = {
        item.name + suffix: {*item.labels, SERVICE_LABEL, "instance", "job", "le"}
        for item in (
            *metrics.ALL,
            *OF_THE_AGENT,
            *OF_THE_GATEWAY,
            *OF_THE_ARCHIVER,
            *OF_THE_CONSOLE,
            *OF_THE_DRIVER,
        )
        for suffix in (SUFFIXES if item.kind == "histogram" else ("",))
    }
    # and the same of what is recorded of them for all replicas
    exprs = "\n".join(rule["expr"] for rule in rules())
    exprs = re.sub(r"\bnodepool:(nodepool_\w+):max\b", r"\1", exprs)

    # when the series that the rules choose are looked up
    chosen = re.findall(r"(?<![\w:])(nodepool_[a-z_]+)(?:\{([^}]*)\})?", exprs)
    named = [(name, set(re.findall(r"(\w+)\s*[=!]", matchers))) for name, matchers in chosen]

    # then there is each, with these labels; labels in `by` and `on` have such names too
    lists = {"nodepool_cluster", "nodepool_service"}
    assert [(n, ls) for n, ls in named if n not in lists and not ls <= known.get(n, set())] == []


def test_the_objective_is_a_bound_of_the_histogram() -> None:
    bounds = set(re.findall(r'le="([\d.]+)"', RULES.read_text(encoding="utf-8")))
    assert {float(bound) for bound in bounds} <= set(metrics.TIME_TO_TARGET.buckets)
    assert {str(float(bound)) for bound in bounds} == bounds


def test_what_is_no_loss_of_nodes_is_what_somebody_asked_for() -> None:
    (causes,) = set(re.findall(r'cause!~"([^"]*)"', ALERTS["NodepoolNodesLost"]["expr"]))
    # A cordon by a command may name anything.
    assert causes.split("|") == [*INTENDED, NodeFailure.OTHER.value]


def test_the_rules_that_are_tried_as_broken_are_ones_that_there_are() -> None:
    tried = (TRIED / "NodepoolInvariantViolated.yml").read_text(encoding="utf-8")
    assert set(re.findall(r'invariant="(\w+)"', tried)) <= set(RULES_THAT_HOLD)


def test_the_absence_of_every_service_is_noticed() -> None:
    expr = ALERTS["NodepoolServiceAbsent"]["expr"]
    assert re.findall(r'nodepool_service="(\w+)"', expr) == list(EVERY)


def test_prometheus_can_read_its_configuration() -> None:
    done = promtool("check", "config", str(FOLDER / "prometheus.yml"))
    assert (done.returncode, done.stderr) == (0, "")


def test_the_alertmanager_can_read_its_configuration() -> None:
    program = shutil.which("amtool")
    if program is None:
        pytest.skip("there is no amtool on PATH")
    command = [program, "check-config", str(FOLDER / "alertmanager.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_alertmanager_names_alerts_and_severities_that_there_are() -> None:
    # given every matcher
    config = yaml.safe_load((FOLDER / "alertmanager.yml").read_text(encoding="utf-8"))
    routes = [matcher for route in config["route"]["routes"] for matcher in route["matchers"]]
    inhibited = [
        matcher
        for rule in config["inhibit_rules"]
        for side in ("source_matchers", "target_matchers")
        for matcher in rule[side]
    ]

    # then each chooses something, and every alternative of it does
    severities = {alert["labels"]["severity"] for alert in ALERTS.values()}
    assert {re.sub(r'severity="(\w+)"', r"\1", matcher) for matcher in routes} == severities
    for matcher in inhibited:
        name, value = re.fullmatch(r'(\w+)=~?"(.*)"', matcher).groups()  # type: ignore[union-attr]
        if name == "alertname":
            head, _, rest = value.partition("(")
            inner, _, tail = rest.partition(")")
            names = [head + each + tail for each in inner.split("|")] if rest else value.split("|")
            assert set(names) <= set(ALERTS)
        else:
            assert (name, value in SERVICES) == ("nodepool_service", True)
