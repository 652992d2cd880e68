"""Any NATS client can send commands and read their outcomes; it needs no library of ours."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client

from bus.harness import PATIENCE_S, connected, serving
from nodepool.local.server import NatsServer
from support.constants import H100, ZONE
from support.services import services

MANIFEST = {
    "apiVersion": "compute.coreweave.com/v1alpha1",
    "kind": "NodePool",
    "metadata": {"name": "training"},
    "spec": {"instanceType": H100, "targetNodes": 2},
}
SUBJECT = "np.cmd.acme.prod.training.ApplyNodePool"


@asynccontextmanager
async def plain(
    server: NatsServer, tmp_path: Path, names: tuple[str, ...] = ("validator", "quota")
) -> AsyncIterator[Client]:
    """Two services at work, and a client of the nats-py library."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(connected(server.url))
        for service in services(*names):
            log = tmp_path / f"{service.name}.log"
            await stack.enter_async_context(serving(service, server, log))
        client = await nats.connect(server.url)
        stack.push_async_callback(client.close)
        await send(client, "np.cmd.acme.prod._.RegisterCluster", {"zone": ZONE}, "cluster")
        yield client


async def send(
    client: Client, subject: str, content: object, id: str, headers: dict[str, str] | None = None
) -> dict[str, object]:
    """Publishes as `nats pub` does; the outcome with that id, or the next one without an id."""
    subscription = await client.subscribe("np.evt.*.*.*.*.*")
    await client.publish(
        subject, json.dumps(content).encode(), headers=headers or {"Nats-Msg-Id": id}
    )
    async with asyncio.timeout(PATIENCE_S):
        async for message in subscription.messages:
            envelope: dict[str, object] = json.loads(message.data)
            outcome = envelope["type"] in ("CommandAccepted", "CommandRefused")
            if outcome and (envelope["correlationid"] == id or not id):
                await subscription.unsubscribe()
                return envelope
    raise AssertionError("the subscription ended")


async def test_bare_json_on_a_subject_is_a_command_with_an_outcome(
    server: NatsServer, tmp_path: Path
) -> None:
    # given a control plane at work
    async with plain(server, tmp_path) as client:
        # when a manifest is published, and nothing around it
        outcome = await send(client, SUBJECT, MANIFEST, "my-id")

        # then an event with the id of that message says that it was accepted
        assert outcome["type"] == "CommandAccepted"
        assert outcome["specversion"] == "1.0"
        assert outcome["data"] == {
            "org": "acme",
            "cluster": "prod",
            "pool": "training",
            "command": "ApplyNodePool",
            "result": "created",
            "generation": 1,
            "dryRun": False,
        }


async def test_bare_json_with_an_error_is_refused_with_the_field_and_the_reason(
    server: NatsServer, tmp_path: Path
) -> None:
    # given a control plane at work
    async with plain(server, tmp_path) as client:
        # when a manifest with an error is published
        wrong = {**MANIFEST, "spec": {"instanceType": H100, "targetNodes": -1}}
        outcome = await send(client, SUBJECT, wrong, "my-id")

        # then the outcome names the field and the reason
        assert outcome["type"] == "CommandRefused"
        data = outcome["data"]
        assert isinstance(data, dict)
        assert (data["field"], data["reason"]) == ("spec.targetNodes", "Invalid")


@pytest.mark.parametrize("mode", ["structured", "binary", "unnamed"])
async def test_a_cloudevent_is_understood_in_either_mode(
    server: NatsServer, tmp_path: Path, mode: str
) -> None:
    # given a control plane at work
    async with plain(server, tmp_path) as client:
        # when a CloudEvent is published, or a message without any id
        match mode:
            case "structured":
                event = {"specversion": "1.0", "id": "e1", "type": "ApplyNodePool"}
                content: object = {**event, "source": "me", "data": MANIFEST}
                outcome = await send(client, SUBJECT, content, "e1", {"X": "y"})
            case "binary":
                headers = {"ce-specversion": "1.0", "ce-id": "e1", "ce-source": "me"}
                outcome = await send(client, SUBJECT, MANIFEST, "e1", headers)
            case _:
                outcome = await send(client, SUBJECT, MANIFEST, "", {"X": "y"})
                assert str(outcome["correlationid"]).isdecimal()

        # then its outcome carries its id, or its position in the log
        assert outcome["type"] == "CommandAccepted"


async def test_the_same_command_published_again_changes_nothing(
    server: NatsServer, tmp_path: Path
) -> None:
    # given a manifest that was accepted
    async with plain(server, tmp_path) as client:
        await send(client, SUBJECT, MANIFEST, "first")

        # when it is published again under another id
        outcome = await send(client, SUBJECT, MANIFEST, "second")

        # then it is accepted and changes nothing
        data = outcome["data"]
        assert isinstance(data, dict)
        assert (data["result"], data["generation"]) == ("unchanged", 1)


async def test_a_query_published_as_bare_json_is_answered_on_the_bus(
    server: NatsServer, tmp_path: Path
) -> None:
    # given a control plane at work, and a subscription to answers
    async with plain(server, tmp_path, ("validator", "capacity")) as client:
        answers = await client.subscribe("np.evt.capacity.acme._._.CapacityFound")

        # when a query is published, and nothing around it
        query = {"selections": [{"instanceType": H100, "count": 2}]}
        outcome = await send(client, "np.cmd.acme._._.FindCapacity", query, "where")

        # then an event with the id of that message has the zones, those with a cluster first
        answer = json.loads((await answers.next_msg(timeout=PATIENCE_S)).data)
        assert outcome["type"] == "CommandAccepted"
        assert answer["correlationid"] == "where"
        assert answer["data"]["selections"] == query["selections"]
        assert answer["data"]["zones"][0] == {
            "zone": ZONE,
            "availability": "Not available",
            "hasCluster": True,
            "tags": ["Not available"],
        }
