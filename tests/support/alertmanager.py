"""What Alertmanager holds back, as its documentation has it, and a real one to compare with."""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

import pytest
import yaml

from nodepool.local.ports import HOST
from support.prometheus import DEPLOY
from testbed.pages import page
from testbed.ports import free_port

CONFIG = DEPLOY / "prometheus" / "alertmanager.yml"
PATIENCE_S = 30.0
PAUSE_S = 0.05
_MATCHER = re.compile(r'(?P<label>\w+)(?P<operator>=~|!~|!=|=)"(?P<value>[^"]*)"')

Labels = Mapping[str, str]
"""An alert: its labels, with its name as `alertname`."""


class Inhibition(NamedTuple):
    """A rule by which one alert keeps another from being sent.

    source, target: the matchers of both, each with label, operator and value.
    equal: the labels that both must have alike; where neither has one, that is alike too, see
        https://prometheus.io/docs/alerting/latest/configuration/#inhibit_rule.
    """

    source: Sequence[tuple[str, str, str]]
    target: Sequence[tuple[str, str, str]]
    equal: Sequence[str]

    def holds_back(self, source: Labels, target: Labels) -> bool:
        """Whether the first alert keeps the second one from being sent."""
        alike = all(source.get(name, "") == target.get(name, "") for name in self.equal)
        is_both = _matches(self.source, target) and _matches(self.target, source)
        return (
            alike
            and not is_both
            and _matches(self.source, source)
            and _matches(self.target, target)
        )


def inhibitions() -> Sequence[Inhibition]:
    """Those of the configuration that is shipped."""
    rules = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))["inhibit_rules"]
    return [
        Inhibition(
            tuple(map(_matcher, rule["source_matchers"])),
            tuple(map(_matcher, rule["target_matchers"])),
            tuple(rule.get("equal", ())),
        )
        for rule in rules
    ]


class Route(NamedTuple):
    """Where alerts go. group_by: the labels of which each set of values is a message."""

    receiver: str
    group_by: Sequence[str]

    def group(self, alert: Labels) -> Sequence[str]:
        """What alerts in one message have in common with this one."""
        return tuple(alert.get(name, "") for name in self.group_by)


def route_of(alert: Labels) -> Route:
    """Where the configuration that is shipped sends an alert: the first route that fits.

    It has what the route at the top has, but for what it gives itself, see
    https://prometheus.io/docs/alerting/latest/configuration/#route.
    """
    top = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))["route"]
    for route in top["routes"]:
        assert route.keys() <= {"matchers", "receiver", "group_by", "repeat_interval"}
        if _matches(tuple(map(_matcher, route["matchers"])), alert):
            top = {**top, **route}
            break
    return Route(top["receiver"], tuple(top["group_by"]))


def _matcher(text: str) -> tuple[str, str, str]:
    match = _MATCHER.fullmatch(text)
    assert match is not None, text
    return match["label"], match["operator"], match["value"]


def _matches(matchers: Sequence[tuple[str, str, str]], labels: Labels) -> bool:
    return all(_fits(labels.get(name, ""), operator, value) for name, operator, value in matchers)


def _fits(has: str, operator: str, value: str) -> bool:
    fits = re.fullmatch(value, has) is not None if "~" in operator else has == value
    return fits is not operator.startswith("!")


class Alertmanager:
    """A running Alertmanager. url: its address."""

    def __init__(self, url: str) -> None:
        self.url = url

    def send(self, alerts: Sequence[Labels]) -> None:
        """Has these alerts fire."""
        content = json.dumps([{"labels": dict(labels)} for labels in alerts]).encode()
        headers = {"Content-Type": "application/json"}
        with urlopen(Request(f"{self.url}/api/v2/alerts", content, headers), timeout=30):
            pass

    def held_back(self, at_least: int) -> Sequence[Labels]:
        """Return the alerts that another alert keeps from being sent, once there are enough.

        Alertmanager looks at alerts in the order of their arrival, after it confirmed all of them.
        """
        end = time.monotonic() + PATIENCE_S
        while True:
            alerts = json.loads(page(f"{self.url}/api/v2/alerts", timeout_s=30))
            held = [alert["labels"] for alert in alerts if alert["status"]["inhibitedBy"]]
            if len(held) >= at_least or time.monotonic() > end:
                return held


@contextmanager
def alertmanager(folder: Path) -> Iterator[Alertmanager]:
    """An Alertmanager with the configuration that is shipped; skips where there is none."""
    program = shutil.which("alertmanager") or shutil.which("prometheus-alertmanager")
    if program is None:
        pytest.skip("there is no alertmanager on PATH")
    address = f"{HOST}:{free_port()}"
    command = [
        program,
        f"--config.file={CONFIG}",
        f"--storage.path={folder}",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
    ]
    with (
        (folder / "alertmanager.log").open("ab") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            _wait_until_ready(f"http://{address}/-/ready", process)
            yield Alertmanager(f"http://{address}")
        finally:
            process.terminate()


def _wait_until_ready(address: str, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        with suppress(OSError):
            page(address)
            return
        with suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"Alertmanager ended with {process.wait(PAUSE_S)}")
    raise TimeoutError("Alertmanager is not ready")
