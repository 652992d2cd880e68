"""What Alertmanager holds back, and sends to whom, of the alerts with the labels of the rules."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from nodepool.contract.metrics import SERVICE_LABEL
from nodepool.contract.services import OPTIONAL, SERVICES, SHARED
from nodepool.local.monitoring import write_prometheus_config
from operations.test_alerts import ALERTS, TRIED
from support.alertmanager import Inhibition, Labels, alertmanager, inhibitions, route_of
from support.prometheus import DEPLOY

OTHER = "another"


def firing(name: str) -> Labels:
    """An alert as promtool has it fire."""
    cases = yaml.safe_load((TRIED / f"{name}.yml").read_text(encoding="utf-8"))["tests"]
    (labels, *_) = [
        alert["exp_labels"]
        for case in cases
        for check in case["alert_rule_test"]
        for alert in check.get("exp_alerts", ())
    ]
    return {"alertname": name, **labels}


FIRING = {name: firing(name) for name in ALERTS}


def names(rule: Inhibition) -> Sequence[tuple[str, str]]:
    """The alerts that a rule is about, as source and target."""
    sides = []
    for matchers in (rule.source, rule.target):
        (pattern,) = [value for label, _, value in matchers if label == "alertname"]
        sides.append([name for name in ALERTS if re.fullmatch(pattern, name)])
    return [(source, target) for source in sides[0] for target in sides[1]]


PAIRS = [(rule, *pair) for rule in inhibitions() for pair in names(rule)]
EACH = pytest.mark.parametrize(
    ("rule", "source", "target"), PAIRS, ids=[f"{source}-{target}" for _, source, target in PAIRS]
)
EVERY = pytest.mark.parametrize("name", ALERTS)


def alike(rule: Inhibition, source: str, target: str) -> tuple[Labels, Labels]:
    """Both alerts about the same thing, and of what the rule names with a value."""
    fixed = {label: value for label, _, value in rule.source if label != "alertname"}
    first = {**FIRING[source], **fixed}
    return first, {**FIRING[target], **{label: first[label] for label in rule.equal}}


@EACH
def test_both_alerts_have_each_label_that_a_rule_compares(
    rule: Inhibition, source: str, target: str
) -> None:
    # Where neither has it, the one alert holds back the other one whatever they are about.
    for name in (source, target):
        assert [label for label in rule.equal if not FIRING[name].get(label)] == []


@EACH
def test_an_alert_is_held_back_by_what_explains_it_and_not_by_another(
    rule: Inhibition, source: str, target: str
) -> None:
    # given two alerts about the same thing
    first, second = alike(rule, source, target)

    # then the one holds back the other one
    assert rule.holds_back(first, second)

    # and it does not where they differ in one of the labels
    for label in rule.equal:
        assert not rule.holds_back(first, {**second, label: OTHER})


def test_what_wakes_a_person_is_held_back_only_by_what_wakes_one_for_the_same_service() -> None:
    # given what holds back alerts that are critical
    critical = {name for name, alert in ALERTS.items() if alert["labels"]["severity"] == "critical"}
    pairs = {(source, target) for _, source, target in PAIRS if target in critical}

    # then the person is up already
    services = ("NodepoolServiceAbsent", "NodepoolServiceNotReady", "NodepoolServiceWithoutLeader")
    assert pairs == {
        (source, target)
        for source in services
        for target in ("NodepoolInputsWait", "NodepoolReadModelStalled")
    }
    assert {source for source, _ in pairs} <= critical


# Whom it is sent to, and in how many messages.


@EVERY
def test_what_is_for_somebody_to_act_on_reaches_somebody(name: str) -> None:
    severity = ALERTS[name]["labels"]["severity"]
    receivers = {"critical": "on-call", "warning": "team", "info": "none"}
    assert route_of(FIRING[name]).receiver == receivers[severity]


def test_nodepools_of_a_zone_without_machines_reach_the_team_as_one_message() -> None:
    pools = [{**FIRING["NodepoolWaitsForMachines"], "pool": pool} for pool in ("a", "b")]
    assert {(route_of(each).receiver, route_of(each).group(each)) for each in pools} == {
        ("team", ("NodepoolWaitsForMachines", "Z", ""))
    }


@pytest.mark.parametrize("name", ["NodepoolServiceNotReady", "NodepoolServiceAbsent"])
def test_a_server_that_is_lost_wakes_a_person_with_one_message(name: str) -> None:
    services = [{**FIRING[name], SERVICE_LABEL: service} for service in SERVICES]
    assert len({route_of(each).group(each) for each in services}) == 1


def test_an_alertmanager_holds_back_just_these(tmp_path: Path) -> None:
    with alertmanager(tmp_path) as running:
        # given one alert that explains others, and others of the same service and of another one
        down = FIRING["NodepoolTargetDown"]
        waits = FIRING["NodepoolInputsWait"]
        absent = {**FIRING["NodepoolServiceAbsent"], SERVICE_LABEL: down[SERVICE_LABEL]}
        copies, not_ready = FIRING["NodepoolLogCopiesMissing"], FIRING["NodepoolServiceNotReady"]
        elsewhere = {**not_ready, SERVICE_LABEL: "capacity"}
        other_down = {**down, SERVICE_LABEL: "lifecycle", "service": "lifecycle"}

        # when all of them fire, the alert that explains others last
        running.send([down, waits, copies, elsewhere, other_down, absent])

        # then what follows from it is held back, and an outage beside a missing copy is not
        held = sorted(running.held_back(at_least=2), key=lambda labels: labels["alertname"])
        assert held == [waits, down]


# The label `service` of targets, which the alert of a replica that is down takes for its own.


def test_prometheus_of_the_containers_names_the_service_of_each_target() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text("utf-8"))
    (job,) = [each for each in config["scrape_configs"] if each["job_name"] == "nodepool"]
    assert job["relabel_configs"] == [
        {"source_labels": ["__meta_dns_name"], "target_label": "service"}
    ]
    assert job["dns_sd_configs"][0]["names"] == [*SHARED, "gateway", "archiver", *OPTIONAL]


def test_the_operator_of_prometheus_names_the_service_of_each_target() -> None:
    # given what the Pods of a service are labelled with
    folder = DEPLOY / "kubernetes"
    labelled = {
        pair["pairs"]["app.kubernetes.io/component"]
        for name in SERVICES
        for pair in yaml.safe_load(
            (folder / "services" / name / "kustomization.yaml").read_text("utf-8")
        )["labels"]
    }
    assert labelled == set(SERVICES)

    # then that is what the target is called
    monitor = yaml.safe_load((folder / "monitoring" / "service-monitor.yaml").read_text("utf-8"))
    (endpoint,) = monitor["spec"]["endpoints"]
    source = "__meta_kubernetes_pod_label_app_kubernetes_io_component"
    assert endpoint["relabelings"] == [
        {"action": "replace", "sourceLabels": [source], "targetLabel": "service"}
    ]


def test_prometheus_of_one_machine_names_the_service_of_each_target(tmp_path: Path) -> None:
    write_prometheus_config(tmp_path, {"quota": 1, "validator": 2})
    targets = json.loads((tmp_path / "prometheus-targets.json").read_text("utf-8"))
    assert [target["labels"] for target in targets] == [
        {"service": "quota"},
        {"service": "validator"},
    ]
