"""The page of every metric says what the list says."""

from nodepool.contract.agent_metrics import OF_THE_AGENT
from nodepool.contract.archive_metrics import OF_THE_ARCHIVER
from nodepool.contract.console_metrics import OF_THE_CONSOLE
from nodepool.contract.gateway_metrics import OF_THE_GATEWAY
from nodepool.contract.metal_metrics import OF_THE_DRIVER
from nodepool.contract.metrics import ALL
from pages.metrics import PAGE, PROCESS, exported_by_states, of_replicas, page


def test_the_page_is_that_of_the_list() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make metrics`"


def test_every_metric_is_on_the_page_once() -> None:
    named = [line.split("`")[1] for line in page().splitlines() if line.startswith("| `")]

    own = (*OF_THE_GATEWAY, *OF_THE_ARCHIVER, *OF_THE_CONSOLE, *OF_THE_DRIVER)
    listed = [metric.name for metric in (*ALL, *OF_THE_AGENT, *own)]
    assert named == [*listed, *(name for name, _, _ in PROCESS)]


def test_every_metric_of_the_list_is_exported() -> None:
    known = of_replicas() | exported_by_states().keys()

    assert [metric.name for metric in ALL if metric not in known] == []
