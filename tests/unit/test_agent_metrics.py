"""The metrics page of the agent: what is counted is there, as the list has it."""

import os
from typing import get_args

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from agent.actions import Action, Place
from agent.host.telemetry import Telemetry
from nodepool.contract.agent_metrics import (
    ACTIONS,
    LAST_SYNC,
    OBJECTS,
    OF_THE_AGENT,
    PODS_WAITING,
    QUEUE,
)
from nodepool.contract.metrics import LEADING, Sample
from nodepool.host.exposition import Wanted
from nodepool.host.settings import Settings
from nodepool.kube.api import Counted

PLACE = Place("acme", "prod", "US-EAST-04A")
PLACED = {"nodepool_service": "agent", "org": "acme", "nodepool_cluster": "prod"}
GAUGES = (
    Sample(QUEUE, (), 3),
    Sample(PODS_WAITING, (), 2),
    Sample(OBJECTS, ("Node",), 5),
    Sample(LAST_SYNC, ("Node",), 1.5),
    Sample(LEADING, (), 1),
)


def page(*, openmetrics: bool = False) -> str:
    """The page of an agent that has done all there is to count."""
    telemetry = Telemetry(Settings(log_file=os.devnull), PLACE, lambda: GAUGES)
    telemetry.count_request(Counted("list", "nodes", 200), 0.03)
    telemetry.count_comparison("Node", 0.03)
    telemetry.count_action("Patch", "changed")
    pieces = telemetry._page.pieces(Wanted(openmetrics=openmetrics))
    telemetry.close()
    assert pieces is not None
    return b"".join(pieces).decode()


@pytest.mark.parametrize("openmetrics", [False, True])
def test_every_metric_of_the_agent_is_on_its_page_as_the_list_has_it(openmetrics: bool) -> None:
    # when it is scraped
    parse = openmetrics_families if openmetrics else text_string_to_metric_families
    families = {family.name: family for family in parse(page(openmetrics=openmetrics))}

    # then every metric is there once, with its type, its help text and its labels
    for metric in OF_THE_AGENT:
        family = families[metric.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.kind, metric.help)
        assert {frozenset(sample.labels) - {"le"} for sample in family.samples} == {
            frozenset({*PLACED, *metric.labels})
        }
        assert [
            sample.labels
            for sample in family.samples
            if not PLACED.items() <= sample.labels.items()
        ] == []


def test_a_request_is_counted_and_timed_and_a_watch_only_counted() -> None:
    telemetry = Telemetry(Settings(log_file=os.devnull), PLACE, lambda: ())
    telemetry.count_request(Counted("get", "leases", 200), 0.03)
    telemetry.count_request(Counted("watch", "nodes", 410), 600.0)
    pieces = telemetry._page.pieces(Wanted())
    telemetry.close()
    assert pieces is not None

    lines = [
        line
        for line in b"".join(pieces).decode().splitlines()
        if line.startswith(("nodepool_agent_requests_total{", "nodepool_agent_request_seconds_sum"))
    ]

    assert lines == [
        'nodepool_agent_requests_total{code="200",nodepool_cluster="prod",nodepool_service="agent",org="acme",resource="leases",verb="get"} 1.0',  # noqa: E501
        'nodepool_agent_requests_total{code="410",nodepool_cluster="prod",nodepool_service="agent",org="acme",resource="nodes",verb="watch"} 1.0',  # noqa: E501
        'nodepool_agent_request_seconds_sum{nodepool_cluster="prod",nodepool_service="agent",org="acme",verb="get"} 0.03',  # noqa: E501
    ]


def test_what_fails_is_counted_from_0_on() -> None:
    telemetry = Telemetry(Settings(log_file=os.devnull), PLACE, lambda: ())
    pieces = telemetry._page.pieces(Wanted())
    telemetry.close()
    assert pieces is not None

    families = text_string_to_metric_families(b"".join(pieces).decode())
    (actions,) = (family for family in families if family.name == ACTIONS.name[: -len("_total")])
    assert {(each.labels["action"], each.labels["result"]) for each in actions.samples} == {
        (action.__name__, result) for action in get_args(Action) for result in ("failed", "refused")
    }
    assert {each.value for each in actions.samples} == {0.0}
