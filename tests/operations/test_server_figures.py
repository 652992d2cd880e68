"""The figures of nats-servers that rules and panels read are figures that a real server has."""

import json
import re
import threading
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml

from bus.harness import BINARY
from containers.nats_exporter import figures, parsed, serve
from dashboards import server_figures
from dashboards.pages import PAGES, text
from nodepool.local.ports import HOST
from nodepool.local.server import NatsServer
from operations.test_alerts import RULES
from testbed.ports import free_port

ROOT = Path(__file__).parents[2]
COMMAND = "-varz -port=7777 ${BUS_MONITORS:-nats,http://nats:8222}"


def test_a_server_has_each_figure_and_the_exporter_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a server that is told how much memory to stay below, and what stands in for the exporter
    monkeypatch.setenv("GOMEMLIMIT", "200MiB")
    monitor = free_port()
    with NatsServer(tmp_path, free_port(), BINARY, monitor_port=monitor):
        address = f"http://{HOST}:{monitor}"
        with serve({"nats": address}, HOST, 0) as exporter:
            threading.Thread(target=exporter.serve_forever, daemon=True).start()

            # when both are asked
            with urlopen(f"{address}/varz", timeout=10) as response:
                known = figures(json.load(response))
            with urlopen(f"http://{HOST}:{exporter.server_port}/metrics", timeout=10) as response:
                shown = re.findall(r'(?m)^(\w+)\{server_id="nats"\} \S+$', response.read().decode())
            exporter.shutdown()

    # then each figure is there
    assert set(server_figures.ALL) - known.keys() == set()
    assert set(server_figures.ALL) - set(shown) == set()


def test_a_server_that_does_not_respond_has_no_figures() -> None:
    with serve({"gone": f"http://{HOST}:{free_port()}"}, HOST, 0) as exporter:
        threading.Thread(target=exporter.serve_forever, daemon=True).start()
        with urlopen(f"http://{HOST}:{exporter.server_port}/metrics", timeout=10) as response:
            assert response.read() == b""
        exporter.shutdown()


def test_rules_and_panels_read_no_other_figures_of_servers() -> None:
    read = RULES.read_text(encoding="utf-8") + "".join(text(page) for page in PAGES)
    assert set(re.findall(r"\bgnatsd_\w+", read)) == set(server_figures.ALL)


@pytest.mark.parametrize("file", ["", "deploy/cluster.env"])
def test_the_exporter_is_given_each_server_of_the_compose_file(file: str) -> None:
    # given the command of the exporter, and the servers
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    services = compose["services"]
    assert services["nats-exporter"]["command"] == COMMAND
    names = [name for name in services if re.fullmatch(r"nats(-\d)?", name)]

    # when a single server runs, or all
    (single,) = re.findall(r":-(.*)\}", COMMAND)
    lines = (ROOT / file).read_text(encoding="utf-8") if file else f"BUS_MONITORS={single}"
    (monitored,) = re.findall(r"(?m)^BUS_MONITORS=(.*)$", lines)

    # then each is asked under its name
    _, servers = parsed(["-varz", "-port=7777", *monitored.split()])
    running = names if file else names[:1]
    assert servers == {name: f"http://{name}:8222" for name in running}
