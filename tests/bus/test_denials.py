"""Users on a server without accounts, to whom it denies some subjects: they are told which."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client

from bus.harness import BINARY, PATIENCE_S, connected, outcome, read_all, serving
from nodepool.cli.app import run
from nodepool.client import Client as ControlPlane
from nodepool.client import Refused
from nodepool.contract.commands import RegisterCluster, SetQuota
from nodepool.contract.events import CommandAccepted
from nodepool.contract.messages import envelope_of
from nodepool.nats.wire.access import Access
from support.constants import H100, ZONE
from support.services import services
from testbed.ports import free_port

CONFIGURATION = """\
listen: "127.0.0.1:{port}"
jetstream {{ store_dir: "{folder}/data" }}
authorization {{
  users: [
    {{ user: services, password: secret }}
    {{
      user: acme
      password: secret
      permissions: {{ publish: "np.cmd.acme.>", subscribe: ["np.evt.*.acme.>", "_INBOX_acme.>"] }}
    }}
    {{
      user: prod
      password: secret
      permissions: {{ publish: ["np.cmd.acme.prod.>", "$JS.API.>"], subscribe: "_INBOX_prod.>" }}
    }}
  ]
}}
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
    """A server with these users."""
    port = free_port()
    configuration = tmp_path / "nats.conf"
    configuration.write_text(CONFIGURATION.format(port=port, folder=tmp_path))
    with (
        (tmp_path / "nats.log").open("wb") as log,
        subprocess.Popen([BINARY, "--config", configuration], stdout=log, stderr=log) as process,
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


async def test_acknowledgements_that_are_sent_where_a_service_speaks_do_no_harm(
    guarded: Guarded, tmp_path: Path
) -> None:
    (validator,) = services("validator")
    async with (
        connected(guarded.url) as connection,
        serving(validator, guarded, tmp_path / "one.log"),
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
        await client.request(subject, content.replace(b'"c1"', b'"c2"'), timeout=PATIENCE_S)

        # then that has its outcome, and nothing is believed
        assert (await outcome(connection, "c2"))["type"] == "CommandAccepted"
        log = await read_all(connection)
        assert sum(entry.subject == replies[0] for entry in log) >= 5
        said = [e for e in log if e.subject == replies[1] and b"specversion" in e.content]
        assert len(said) == 1


OWN_INBOX = Access(inbox_prefix="_INBOX_prod")


def test_who_may_not_read_is_told_so_at_once(
    guarded: Guarded, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a user who may neither read the log nor send this command
    monkeypatch.setenv("NODEPOOL_INBOX_PREFIX", "_INBOX_acme")
    address = ("--url", guarded.of("acme"), "--request-timeout", "20s")

    # when this user reads, and sends a command about another cluster
    read = run([*address, "get", "np"])
    reading = capsys.readouterr().err
    sent = run([*address, "set", "quota", H100, "1", "--zone", ZONE])
    sending = capsys.readouterr().err

    # then the error names the right that the user lacks
    assert (read, sent) == (4, 4)
    assert reading.startswith('error: permission denied for publish to "$js.api.')
    assert sending.startswith('error: permission denied for publish to "')


async def test_a_command_without_the_right_to_it_is_forbidden_and_the_next_one_is_accepted(
    guarded: Guarded, tmp_path: Path
) -> None:
    # given a user who may send commands about a cluster only
    (validator,) = services("validator")
    async with (
        connected(guarded.url) as operator,
        serving(validator, guarded, tmp_path / "one.log"),
        ControlPlane(guarded.of("prod"), org="acme", cluster="prod", access=OWN_INBOX) as user,
    ):
        # when the user sends a command about the organisation, and one about its cluster
        forbidden, accepted = await asyncio.gather(
            user.commands.send(SetQuota(org="acme", zone=ZONE, instance_type=H100, limit=1)),
            user.commands.send(RegisterCluster(org="acme", cluster="prod", zone=ZONE)),
            return_exceptions=True,
        )

        # then the first is refused by name and is not stored, and the second is accepted
        assert isinstance(forbidden, Refused)
        assert (forbidden.reason, forbidden.field) == ("Forbidden", "")
        assert 'permission denied for publish to "np.cmd.acme._._.setquota"' in str(forbidden)
        assert isinstance(accepted, CommandAccepted)
        log = await read_all(operator)
        commands = {entry.subject for entry in log if entry.subject.startswith("np.cmd.")}
        assert commands == {"np.cmd.acme.prod._.RegisterCluster"}


def test_a_user_without_the_right_to_a_command_sees_the_refusal(
    guarded: Guarded, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a log, and a user who may read the log and not set quotas
    async def prepare() -> None:
        async with connected(guarded.url):
            pass

    asyncio.run(prepare())
    monkeypatch.setenv("NODEPOOL_INBOX_PREFIX", "_INBOX_prod")

    # when this user sets a quota
    arguments = ("set", "quota", H100, "1", "--zone", ZONE, "--org", "acme")
    code = run(["--url", guarded.of("prod"), *arguments])

    # then the command is refused with the right that the user lacks
    assert code == 1
    assert capsys.readouterr() == (
        "",
        'error: permission denied for publish to "np.cmd.acme._._.setquota" (Forbidden)\n',
    )
