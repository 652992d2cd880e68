"""`deploy/permissions.conf` on a real server: nobody can speak as a service, or as another."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.errors import TimeoutError as NatsTimeout

from bus.harness import BINARY, connected, outcome, read_all, serving
from nodepool.cli.app import run
from nodepool.contract.commands import RegisterCluster
from nodepool.contract.messages import envelope_of
from nodepool.local.ports import free_port
from support.constants import ZONE
from support.services import services

PERMISSIONS = Path(__file__).parents[2] / "deploy" / "permissions.conf"
CONFIGURATION = """\
listen: "127.0.0.1:{port}"
jetstream {{ store_dir: "{folder}/data" }}
include "permissions.conf"
"""


class Guarded:
    """The address of a server, as a service sees it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = self.of("services")

    def of(self, user: str) -> str:
        return f"nats://{user}:secret@127.0.0.1:{self.port}"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    """A server with the permissions of the example."""
    port = free_port()
    (tmp_path / "permissions.conf").write_text(PERMISSIONS.read_text())
    configuration = tmp_path / "nats.conf"
    configuration.write_text(CONFIGURATION.format(port=port, folder=tmp_path))
    environment = {**os.environ, "SERVICES_PASSWORD": "secret", "ACME_PASSWORD": "secret"}
    with (
        (tmp_path / "nats.log").open("wb") as log,
        subprocess.Popen(
            [BINARY, "--config", configuration], env=environment, stdout=log, stderr=log
        ) as process,
    ):
        yield Guarded(port)
        process.terminate()


@asynccontextmanager
async def organisation(server: Guarded) -> AsyncIterator[Client]:
    """A client of the organisation, as the nats-py library makes it."""
    client = await nats.connect(server.of("acme"), inbox_prefix=b"_INBOX_acme")
    yield client
    await client.close()


def command(org: str) -> tuple[str, bytes]:
    """The subject and the content of a command of this organisation."""
    data = RegisterCluster(org=org, cluster="prod", zone=ZONE)
    envelope = envelope_of(RegisterCluster).model_construct(
        id="c1", type="RegisterCluster", source="me", data=data
    )
    return f"np.cmd.{org}.prod._.RegisterCluster", envelope.encode()


def test_an_organisation_sends_its_commands_and_reads_their_outcomes(
    guarded: Guarded, tmp_path: Path
) -> None:
    async def story() -> None:
        # given a service that is connected as one
        (validator,) = services("validator")
        async with (
            connected(guarded.url),
            serving(validator, guarded, tmp_path / "one.log"),  # type: ignore[arg-type]  # Its url.
            organisation(guarded) as client,
        ):
            # when an organisation sends a command
            events = await client.subscribe("np.evt.*.acme.*.*.*")
            subject, content = command("acme")
            await client.request(subject, content, timeout=10)

            # then it reads the outcome
            event = json.loads((await events.next_msg(timeout=10)).data)
            assert event["type"] == "CommandAccepted"

    asyncio.run(story())


@pytest.mark.parametrize(
    "subject",
    [
        "np.cmd.other.prod._.RegisterCluster",
        "np.cmd.fleet.z._.AddMachines",
        "np.evt.quota.acme._._.QuotaSet",
        "np.evt.clock.quota._._.Wake",
        "np.commit.quota",
        "np.dead.quota",
        "np-snapshot.quota.manifest",
        "$KV.nodepools.acme.prod.train",
        "$JS.API.STREAM.DELETE.NODEPOOL",
    ],
)
def test_an_organisation_cannot_publish_anything_else(guarded: Guarded, subject: str) -> None:
    async def story() -> None:
        async with connected(guarded.url) as connection, organisation(guarded) as client:
            # given a bus
            # when an organisation publishes on a subject that is not its own
            with pytest.raises(NatsTimeout):
                await client.request(subject, b"{}", timeout=0.3)

            # then nothing is stored
            assert await read_all(connection) == []

    asyncio.run(story())


def test_acknowledgements_that_are_sent_where_a_service_speaks_do_no_harm(
    guarded: Guarded, tmp_path: Path
) -> None:
    async def story() -> None:
        (validator,) = services("validator")
        async with (
            connected(guarded.url) as connection,
            serving(validator, guarded, tmp_path / "one.log"),  # type: ignore[arg-type]  # Its url.
            organisation(guarded) as client,
        ):
            # given an organisation that has the server acknowledge its commands on the subjects of
            # the services, where it may not publish: the server does not look at who asks for that
            subject, content = command("acme")
            replies = ["np.commit.validator", "np.evt.validator.acme.prod._.ClusterRegistered"]
            for reply in [*replies, "np-snapshot.validator.manifest", "$KV.clusters.acme.prod"] * 5:
                await client.publish(subject, content, reply=reply)
            await client.flush()

            # when it sends a command
            await client.request(subject, content.replace(b'"c1"', b'"c2"'), timeout=10)

            # then that has its outcome, and nothing is believed
            assert (await outcome(connection, "c2"))["type"] == "CommandAccepted"
            log = await read_all(connection)
            assert sum(entry.subject == replies[0] for entry in log) >= 5
            said = [e for e in log if e.subject == replies[1] and b"specversion" in e.content]
            assert len(said) == 1

    asyncio.run(story())


def test_an_operator_may_examine_back_up_and_restore(guarded: Guarded, tmp_path: Path) -> None:
    async def story() -> None:
        async with connected(guarded.url) as connection:
            await connection.flush()

        async def nodepool(*words: str) -> int:
            return await asyncio.to_thread(run, ["--url", guarded.url, *words])

        folder = str(tmp_path / "backup")
        assert await nodepool("backup", folder) == 0
        assert await nodepool("restore", "--force", folder) == 0
        found = await asyncio.to_thread(_examined, guarded.url)
        assert "commands of demo: this user may send them" in found
        assert "cannot be looked at" not in found

    asyncio.run(story())


def _examined(url: str) -> str:
    command = [sys.executable, "-m", "nodepool.cli", "--url", url, "doctor"]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=60
    ).stdout
