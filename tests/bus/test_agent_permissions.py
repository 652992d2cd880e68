"""The agent on a bus with TLS, passwords and the permissions of the example: it needs no more."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import Cluster, Context, User

from agent.actions import Place
from agent.host.settings import AgentSettings
from agent.host.telemetry import Telemetry
from agent.main import Term, lease_of
from agent.pools.sides import NOT_DELETED
from bus.harness import serving, until
from bus.test_permissions import AGENT, MANIFEST, PERMISSIONS
from bus.tls import HOST, encrypted, running
from contracts.samples import sample
from nodepool.client import Client
from nodepool.contract.events import NodeReported
from nodepool.host.settings import Settings
from nodepool.nats.wire.access import Access
from nodepool.nats.wire.waiting import cancel
from support.agent.answered import answered
from support.certificates import certificates, needs_openssl
from support.constants import ZONE
from support.services import services
from testbed.ports import free_port

PASSWORDS = ("$SERVICES_PASSWORD", "$ACME_PASSWORD", "$AGENT_PASSWORD")
PLACE = Place("acme", "prod", ZONE)
NO_API_SERVER = "http://127.0.0.1:1"
NAMESPACE = b'{"metadata": {"uid": "5c1f7a52"}}'
"""What the agent registers its cluster by."""


class Secured(NamedTuple):
    """A server with TLS and the users of the example, and what each of them shows."""

    port: int
    services: Access
    agent: Access

    @property
    def url(self) -> str:
        """The address, as a service sees it."""
        return self.of("services")

    def of(self, user: str) -> str:
        """The address with a user."""
        return f"tls://{user}@{HOST}:{self.port}"


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    """Such a server; all users have the same password."""
    made, port = certificates(tmp_path), free_port()
    password = tmp_path / "password"
    password.write_text("secret\n")
    users = PERMISSIONS.read_text()
    for variable in PASSWORDS:
        users = users.replace(variable, '"secret"')
    shown = Access(ca_file=str(made.ca), password_file=str(password))
    agent = Access(shown.ca_file, password_file=str(password), inbox_prefix=f"_INBOX_{AGENT}")
    with running(tmp_path, port, f"{encrypted(made)}\n{users}"):
        yield Secured(port, shown, agent)


def warnings(log: Path) -> list[object]:
    """The lines of a log that are no mere information."""
    lines = (json.loads(line) for line in log.read_text().splitlines())
    return [line for line in lines if line["level"] not in ("debug", "info")]


@needs_openssl
async def test_all_that_the_agent_does_on_the_bus_its_user_may_do(
    secured: Secured, tmp_path: Path
) -> None:
    # given the services that an agent needs, and a NodePool of its cluster
    validator, aggregator = services("validator", "aggregator")
    settings = Settings(
        secured.of(AGENT), log_file=str(tmp_path / "agent.log"), access=secured.agent
    )
    kubeconfig = SingleConfig(
        "none", Context("none", "none"), Cluster(NO_API_SERVER), User(token="none")
    )
    telemetry = Telemetry(settings, PLACE, lambda: ())
    async with (
        serving(validator, secured, tmp_path / "1.log", access=secured.services),
        serving(aggregator, secured, tmp_path / "2.log", access=secured.services),
        answered(lambda _path: (200, NAMESPACE)) as api,
    ):
        # when the agent is at work: it registers its cluster, reads its objects and events
        agent = AgentSettings(settings, PLACE, kubeconfig)
        lease = lease_of(agent, api, telemetry.log)
        term = Term(agent, api, lease, telemetry)
        working = asyncio.create_task(term.bus.run())
        await until(lambda: not term.bus.obstacle)
        async with Client(
            secured.of(AGENT), org="acme", cluster="prod", access=secured.agent
        ) as client:
            await client.nodepools.apply(MANIFEST)
        await until(lambda: "train" in term.bus.model.pools)

        # and it reports, and asks the log
        report = sample(NodeReported, org="acme", cluster="prod", pool="train")
        await term.bus.publish(report)
        end = await term.bus.log.newest_position()
        assert await term.bus.log.deletion_of("train") == NOT_DELETED
        assert not await term.bus.log.has_ended("n1", 1, 1, lambda: 1)

        # then nothing was refused to it, also not as it ends
        assert term.bus.obstacle == ""
        log = term.bus.model.log
        assert end >= 3
        await cancel(working)

        # and where it goes on after what was recorded before
        assert log is not None
        lease.progress = f"{log.id}:1:0"
        term = Term(agent, api, lease, telemetry)
        working = asyncio.create_task(term.bus.run())
        await until(lambda: not term.bus.obstacle)
        await until(lambda: term.recorder.recorded == "")
        await cancel(working)
    telemetry.close()
    assert warnings(tmp_path / "agent.log") == []
