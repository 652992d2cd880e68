"""What is as large as messages may be, and larger, on a real server."""

import json
from pathlib import Path

import pytest

from bus.harness import BINARY, connected, lines_of, outcome, read_all, send, serving, until
from nodepool.client import Client, Refused
from nodepool.contract.commands import RegisterCluster
from nodepool.contract.messages import ID_MAX
from nodepool.engine.bounds import DATA_BYTES_MAX
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.connection import Connection
from support.constants import H100, ZONE
from support.large_outputs import LARGEST, TALKATIVE, TOO_LARGE
from support.sample_service import pages_added, print_now
from support.services import services
from testbed.ports import free_port
from unit.test_decode import REQUIRED

MANIFEST = {
    "apiVersion": "compute.coreweave.com/v1alpha1",
    "kind": "NodePool",
    "metadata": {"name": "train"},
    "spec": {"instanceType": H100, "targetNodes": 1},
}


def restarts(log: Path) -> list[object]:
    """Why sessions began anew, as a replica has logged it."""
    return [
        line["cause"]
        for line in lines_of(log)
        if line["event"] in ("session restarts", "bus error")
    ]


async def test_the_largest_output_is_stored_with_the_longest_id(
    server: NatsServer, tmp_path: Path
) -> None:
    async with connected(server.url) as connection:
        # given a command with a long id whose output is as large as it may be
        id = "\u00e9" * ID_MAX
        async with serving(TALKATIVE, server, tmp_path / "one.log"):
            await send(connection, print_now(LARGEST), id)

            # when it is processed
            # then its output is stored
            assert (await outcome(connection, id))["type"] == "CommandAccepted"
        stored = [e for e in await read_all(connection) if e.subject.endswith(".PaperJammed")]
        assert len(stored) == 1
        assert len(stored[0].content) > DATA_BYTES_MAX
        assert restarts(tmp_path / "one.log") == []


async def test_an_output_that_is_too_large_fails_its_input_and_stops_nothing(
    server: NatsServer, tmp_path: Path
) -> None:
    async with connected(server.url) as connection:
        # given a command and an event with outputs that are too large, and another command
        async with serving(TALKATIVE, server, tmp_path / "one.log"):
            await send(connection, print_now(TOO_LARGE), "c1")
            await say(connection, TOO_LARGE)
            await send(connection, print_now(1), "c2")

            # when they are processed
            # then the first is refused and the second parked, and the third is done
            assert (await outcome(connection, "c1"))["type"] == "CommandRefused"
            assert (await outcome(connection, "c2"))["type"] == "CommandAccepted"
        log = await read_all(connection)
        parked = [json.loads(e.content)["position"] for e in log if ".dead." in e.subject]
        subjects = [log[position - 1].subject.rpartition(".")[2] for position in parked]
        assert subjects == ["PrintNow", "PagesAdded"]
        assert restarts(tmp_path / "one.log") == []


async def say(connection: Connection, pages: int) -> None:
    """Publishes an event that the print shop hears."""
    data = pages_added(pages).model_dump(mode="json", by_alias=True)
    event = {"id": "e1", "type": "PagesAdded", "source": "desk", "data": data}
    subject = "np.evt.desk.acme.prod.train.PagesAdded"
    await api.publish_event(connection, subject, json.dumps(event).encode())


async def test_an_affinity_with_very_many_empty_terms_is_refused_and_others_do_not_wait(
    server: NatsServer, tmp_path: Path
) -> None:
    async with connected(server.url) as connection:
        # given a manifest that takes much more room once its defaults are written out
        (validator,) = services("validator")
        terms: list[dict[str, object]] = [{}] * 43_565
        affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
        spec = {"instanceType": H100, "targetNodes": 1, "affinity": affinity}
        content = json.dumps({**MANIFEST, "spec": spec}, separators=(",", ":")).encode()
        cluster = RegisterCluster(org="acme", cluster="prod", zone=ZONE)
        async with serving(validator, server, tmp_path / "one.log"):
            await send(connection, cluster, "c1")

            # when it is sent
            subject = "np.cmd.acme.prod.train.ApplyNodePool"
            await api.publish(connection, subject, content, {"ce-id": "c2"})

            # then it is refused, and what another organisation sends has its outcome
            assert (await outcome(connection, "c2"))["type"] == "CommandRefused"
            other = cluster.model_copy(update={"org": "other"})
            await send(connection, other, "c3")
            assert (await outcome(connection, "c3"))["type"] == "CommandAccepted"
        assert restarts(tmp_path / "one.log") == []


async def test_a_server_that_takes_smaller_messages_only_is_refused_with_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a server whose max_payload is smaller than what services may say
    monkeypatch.setattr("nodepool.local.config.MAX_PAYLOAD", 512 * 1024)
    with NatsServer(tmp_path / "nats", free_port(), BINARY) as server:
        log = tmp_path / "one.log"

        # when a service starts on it
        async with serving(TALKATIVE, server, log, wait=False) as runtime:
            await until(lambda: log.exists() and len(restarts(log)) > 0)

            # then it says why it does not work, and is not ready
            assert restarts(log)[0] == (
                "the server refuses: its max_payload is 524288 bytes; set it to 1048576 or more (0)"
            )
            assert not runtime.is_ready()


async def test_a_command_that_is_too_large_is_refused_without_being_sent(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection, Client(server.url, timeout_s=2) as client:
        # given a manifest that is larger than a command may be
        manifest = {**MANIFEST, "metadata": {"name": "train", "labels": {"a": "x" * 300_000}}}

        # when it is applied
        # then it is refused for its size
        with pytest.raises(Refused, match="bytes; at most 262144 are taken"):
            await client.nodepools.apply(manifest)
        assert await api.last_position(connection, STREAM) == 0
