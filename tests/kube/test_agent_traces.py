"""Traces of changes in a cluster, from the agent that sends them to what follows from them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kube.node_pools import manifest, name_for
from kube.shell import Shell
from nodepool.client import Client, Document
from nodepool.nats.log import api
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.connection import connect
from support.otlp import Receiver, receiving
from testbed.agent import Agent, agent_at_work
from testbed.cluster import WITHIN_S, wait_until
from testbed.plane import CLUSTER, ORG, Plane


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    """What takes the spans of the agent."""
    with receiving() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def agent(
    account: Path, plane: Plane, receiver: Receiver, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Agent]:
    """An agent at work that sends its spans there, soon."""
    settings = {
        "NODEPOOL_TRACES": "otlp",
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
        "OTEL_BSP_SCHEDULE_DELAY": "100",
    }
    folder = tmp_path_factory.mktemp("agent")
    with agent_at_work(folder, account, plane.url, settings=settings) as agent:
        yield agent


def last_event(plane: Plane, subject: str) -> Document:
    """The last message on a subject of the log."""

    async def work(client: Client) -> Document:
        connection = await connect(client.session.url, "test")
        try:
            entry = await api.last_message(connection, STREAM, subject)
        finally:
            await connection.close()
        assert entry is not None, f"nothing lies on {subject}"
        document: Document = json.loads(entry.content)
        return document

    return plane.do(work)


def test_the_trace_of_a_change_with_kubectl_leads_to_the_registration_of_the_node(
    shell: Shell, plane: Plane, receiver: Receiver, request: pytest.FixtureRequest
) -> None:
    name = name_for(request)
    subject = f"np.cmd.{ORG}.{CLUSTER}.{name}.ApplyNodePool"

    applied = shell.run("kubectl apply -f -", manifest(name))
    reached = shell.run(f"kubectl wait --for=condition=AtTarget nodepool/{name} --timeout=60s")
    wait_until(
        "the span of the command is received",
        lambda: any(
            span.attributes["messaging.destination.name"] == subject for span in receiver.spans
        ),
        WITHIN_S,
    )
    registered = last_event(plane, f"np.evt.lifecycle.{ORG}.{CLUSTER}.{name}.CWNodeRegistered")
    deleted = shell.run(f"kubectl delete nodepool {name} --timeout=60s")

    (sent,) = (
        span for span in receiver.spans if span.attributes["messaging.destination.name"] == subject
    )
    assert [each.code for each in (applied, reached, deleted)] == [0, 0, 0]
    assert (sent.service, sent.kind, sent.parent) == ("agent", "producer", "")
    assert registered["correlationid"] == sent.attributes["messaging.message.id"]
    assert str(registered["traceparent"])[3:35] == sent.trace
