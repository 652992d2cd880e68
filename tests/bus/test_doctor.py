"""`nodepool doctor` on set-ups that are really broken: what it reports, and what it advises."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from bus.broken import BROKEN, FAILING
from bus.harness import PATIENCE_S, connected, fill, limit, outcome, send, serving, until
from bus.stalling import stalling
from bus.tls import HOST, encrypted, running
from fleet.decide import SERVICE as FLEET
from metal.decide import SERVICE as METAL
from nodepool.cli.app import run
from nodepool.client import Client
from nodepool.contract.model import API_VERSION
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.streams import STREAM, provision, streams
from nodepool.nats.wire.connection import Connection, connect
from nodepool.service import commit_subject
from quota.decide import SERVICE as QUOTA
from support.certificates import certificates, needs_openssl
from support.constants import H100, ZONE
from support.services import services
from testbed.ports import free_port

BEGINNING = 4_000
"""How many bytes a server sends until it is connected, and before all is answered."""
EMPTY = f"""\
apiVersion: {API_VERSION}
kind: NodePool
metadata: {{name: empty}}
spec: {{instanceType: {H100}, targetNodes: 0}}
"""
Report = dict[str, tuple[str, str]]
"""The status and the text of each finding, by its check."""


async def doctor(capsys: pytest.CaptureFixture[str], url: str) -> tuple[int, Report]:
    """The exit code, and the findings."""
    capsys.readouterr()
    code = await asyncio.to_thread(run, ["--url", url, "doctor", "-o", "json"])
    report = json.loads(capsys.readouterr().out)
    assert report["healthy"] is (code == 0)
    assert all(each["fix"] for each in report["checks"] if each["status"] == "problem")
    return code, {each["check"]: (each["status"], each["text"]) for each in report["checks"]}


async def once_it_finds(capsys: pytest.CaptureFixture[str], url: str, **problems: str) -> Report:
    """The findings once these services, and nothing else, are problems whose texts begin so.

    A first look may be too soon: a replica that has just ended is taken for one that hangs.
    """
    code, report = 0, Report()

    async def are_found() -> bool:
        nonlocal code, report
        code, report = await doctor(capsys, url)
        found = {check: text for check, (status, text) in report.items() if status == "problem"}
        return found.keys() == {f"service {name}" for name in problems} and all(
            found[f"service {name}"].startswith(text) for name, text in problems.items()
        )

    await until(are_found)
    assert code == bool(problems)
    return report


@asynccontextmanager
async def at_work(server: NatsServer, folder: Path, *left_out: str) -> AsyncIterator[None]:
    """All services but some."""
    async with AsyncExitStack() as stack:
        for service in services():
            if service.name not in left_out:
                log = folder / f"{service.name}.log"
                await stack.enter_async_context(serving(service, server, log))
        yield


async def has_message(connection: Connection, subject: str) -> bool:
    """Whether a message lies on a subject of the log."""
    return await api.last_message(connection, STREAM, subject) is not None


async def test_a_whole_control_plane_has_no_problem_and_a_service_that_is_missing_is_one(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given all services
    async with at_work(server, tmp_path):
        # when the doctor looks, then nothing is wrong
        report = await once_it_finds(capsys, server.url)

        # and what a new one has not yet is noted
        assert {status for status, _ in report.values()} == {"ok", "note"}
        assert report["service quota"][1].startswith("1 replica, committed to ")
        assert report["clusters"] == ("note", "there are none")

    # when one of them is missing, then that is the problem
    async with at_work(server, tmp_path, "quota"):
        await once_it_finds(capsys, server.url, quota="no replica reads the log")


async def test_a_simulation_that_was_never_at_work_is_noted_and_one_that_has_gone_is_a_problem(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given all services but the one that simulates machines
    async with at_work(server, tmp_path, "fleet"), connected(server.url) as connection:
        # when the doctor looks, then nothing is wrong: there may be real machines
        report = await once_it_finds(capsys, server.url)
        text = "not at work, and has never been: something else is in its place, or is to be"
        assert report["service fleet"] == ("note", text)

        # but when it was at work
        async with serving(FLEET, server, tmp_path / "once.log"):
            subject = commit_subject("fleet")
            await until(lambda: has_message(connection, subject))

        # then it is missing
        await once_it_finds(capsys, server.url, fleet="no replica reads the log; it committed last")


async def test_real_machines_are_missed_only_where_their_service_was_at_work(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given all services of a cell without real machines
    async with at_work(server, tmp_path), connected(server.url) as connection:
        # when the doctor looks, then it says nothing of them
        report = await once_it_finds(capsys, server.url)
        assert "service metal" not in report

        # but when the service for real machines is at work
        async with serving(METAL, server, tmp_path / "metal.log"):
            await until(lambda: has_message(connection, commit_subject("metal")))
            report = await once_it_finds(capsys, server.url)
            assert report["service metal"][0] == "ok"

        # then it is missing once it is gone
        await once_it_finds(capsys, server.url, metal="no replica reads the log; it committed last")


async def test_an_agent_that_is_gone_is_a_problem_only_where_its_cluster_has_node_pools(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def found() -> tuple[str, str]:
        _, report = await doctor(capsys, server.url)
        return report["agent acme/prod"]

    async with (
        at_work(server, tmp_path),
        Client(server.url, org="acme", cluster="prod") as client,
        Client(server.url, org="acme", cluster="prod-2") as other,
    ):
        # given a cluster of Kubernetes without an agent, beside one with a NodePool
        await client.clusters.register("prod", ZONE, kubernetes=True)
        await other.clusters.register("prod-2", ZONE)
        await other.nodepools.apply(EMPTY)

        # when the doctor looks before it has a NodePool, and while it has one
        before = await found()
        await client.nodepools.apply(EMPTY)
        meanwhile = await found()
        await client.nodepools.delete("empty")
        await until(lambda: is_gone(client, "empty"))
        after = await found()

    # then the agent is missed only then
    text = "no agent reads the log: NodePools and Nodes of the cluster are not kept up"
    idle = ("note", "no agent reads the log, and the cluster has no NodePools")
    assert (before, meanwhile, after) == (idle, ("problem", text), idle)


async def is_gone(client: Client, pool: str) -> bool:
    """Whether the read model has no such NodePool."""
    return await client.nodepools.get(pool) is None


async def test_what_is_wrong_with_streams_and_dead_letters_is_found(
    server: NatsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    async with connected(server.url) as connection:
        # given a log with other settings and a limit, a bucket that is gone, a dead letter
        await api.publish(connection, "np.dead.quota", b"{}")
        config = {**streams()[STREAM], "allow_direct": False, "max_bytes": 60}
        await api.request(connection, f"$JS.API.STREAM.UPDATE.{STREAM}", config)
        await api.request(connection, "$JS.API.STREAM.DELETE.KV_nodes")

        # when the doctor looks
        code, report = await doctor(capsys, server.url)

    # then each is named
    assert code == 1
    assert report["stream NODEPOOL"] == (
        "problem",
        "allow_direct is not as the services set it",
    )
    assert report["stream KV_nodes"] == ("problem", "it is missing")
    assert report["log size"] == ("problem", "0 of 0 MiB are used")


async def test_dead_letters_and_what_waits_are_found(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with connected(server.url) as connection:
        async with serving(QUOTA, server, tmp_path / "quota.log"):
            await send(connection, limit(1), "c1")
            await outcome(connection, "c1")
        await api.publish(connection, "np.dead.quota", b"{}")

        # when a replica reads and commits nothing while a command waits
        frozen = await connect(server.url, "test")
        inbox = frozen.new_inbox()
        await frozen.subscribe(inbox)
        filters = {"filter_subjects": list(QUOTA.filters()), "name": "frozen"}
        metadata = {"nodepool.service": "quota"}
        body = {
            "stream_name": STREAM,
            "config": {**filters, "ack_policy": "none", "metadata": metadata},
        }
        await api.request(frozen, f"$JS.API.CONSUMER.CREATE.{STREAM}.frozen", body)
        pull = json.dumps({"batch": 1000, "expires": 60_000_000_000}).encode()
        await frozen.publish(f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.frozen", pull, reply=inbox)
        await send(connection, limit(2), "c2")

        # then it is reported once it has waited for too long
        async def waits() -> bool:
            _, report = await doctor(capsys, server.url)
            assert report["dead letters"] == (
                "problem",
                "1, of quota; in the last day a service failed on 1",
            )
            return "SetQuota at position" in report["service quota"][1]

        await until(waits)
        await frozen.close()


async def test_a_server_that_cannot_be_reached_is_one_finding(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # given an address where nothing listens, and a name that there is not
    port = free_port()

    # when the doctor looks
    code, report = await doctor(capsys, f"nats://{HOST}:{port},nats://no-such-host.invalid:1")

    # then that is reported, and nothing else
    assert code == 1
    assert report == {
        f"address nats://{HOST}:{port}": (
            "problem",
            f"nothing listens on port {port}: Connection refused",
        ),
        "address nats://no-such-host.invalid:1": (
            "problem",
            "the name no-such-host.invalid is not known",
        ),
    }


async def test_what_is_no_nats_server_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whoever waits for a reply that never comes learns no more from a longer wait.
    monkeypatch.setattr("nodepool.client.doctor.examination.CONNECT_S", 0.5)

    with socket.create_server((HOST, 0)) as listener:
        url = f"nats://{HOST}:{listener.getsockname()[1]}"
        code, report = await doctor(capsys, url)

    assert (code, report[f"connection to {url}"]) == (1, ("problem", "no reply in time"))


@needs_openssl
async def test_a_certificate_and_a_password_that_are_wrong_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given a server with TLS, and one that asks for a password
    made = certificates(tmp_path)
    secure, asking = free_port(), free_port()
    password = 'authorization { user: "a", password: "right" }'
    with (
        running(tmp_path, secure, encrypted(made)),
        running(tmp_path, asking, password),
    ):
        # when the doctor looks without knowing whom to trust, and with a wrong password
        _, encryption = await doctor(capsys, f"tls://{HOST}:{secure}")
        _, wrong = await doctor(capsys, f"nats://a:hunter2@{HOST}:{asking}")

    # then each names what it lacks, and no password
    text = encryption[f"connection to tls://{HOST}:{secure}"][1]
    assert text.startswith("its certificate is not trusted")
    assert wrong[f"connection to nats://{HOST}:{asking}"] == (
        "problem",
        "the server refuses the user, password or credentials",
    )
    assert "hunter2" not in str(wrong)


async def test_a_server_without_jetstream_and_a_user_without_rights_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given a server where one user has no JetStream, and another may not send commands
    port = free_port()
    settings = (
        "accounts { bare: { users: [{ user: bare, password: x }] }, whole: { jetstream: true,"
        " users: [{ user: reader, password: x,"
        ' permissions: { publish: ["$JS.API.>"] } }, { user: all, password: x }] } }'
    )
    with running(tmp_path, port, settings):
        bus = await connect(f"nats://all:x@{HOST}:{port}", "test")
        await provision(bus)
        await bus.close()

        # when the doctor looks as each of them
        _, bare = await doctor(capsys, f"nats://bare:x@{HOST}:{port}")
        _, reader = await doctor(capsys, f"nats://reader:x@{HOST}:{port}")

    # then that is reported
    assert bare["JetStream"][0] == "problem"
    assert reader["commands of demo"] == ("note", "this user may not send them")


def test_settings_that_cannot_be_used_are_a_finding(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODEPOOL_KEY_FILE", "/no/such/file")

    code = run(["doctor"])

    assert code == 1
    assert capsys.readouterr().out == (
        "problem  settings: NODEPOOL_CERT_FILE: the key needs its certificate;"
        " name the file of it\n"
        "         -> correct it\n"
    )


async def test_a_server_that_is_nearly_full_by_its_own_limit_is_found(
    server: NatsServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(server.url) as connection:
        await fill(connection, [("np.cmd.a._._.X", bytes(1 << 17))] * 40)
        monkeypatch.setenv("NODEPOOL_MAX_FILE_STORE", "5MB")
        _, report = await doctor(capsys, server.url)
    assert report["JetStream"] == ("problem", "5 of 5 MiB are used")


async def test_a_log_with_fewer_copies_than_wanted_is_found(
    server: NatsServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(server.url):
        monkeypatch.setenv("NODEPOOL_REPLICAS", "3")
        _, report = await doctor(capsys, server.url)
    assert report["stream NODEPOOL"] == ("problem", "1 copy instead of 3")


async def test_commands_that_are_invalid_or_were_done_since_are_no_problem(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with connected(server.url) as connection:
        # given an invalid command, which anybody may send, and one on which quota failed
        async with serving(BROKEN, server, tmp_path / "quota.log"):
            await api.publish(connection, "np.cmd.acme._._.SetQuota", b'{"limit": -1}')
            await send(connection, limit(FAILING), "c1")
            await outcome(connection, "c1")
        _, report = await doctor(capsys, server.url)
        assert report["dead letters"] == (
            "problem",
            "2, of quota; in the last day a service failed on 1",
        )

        # when quota is mended, and the command is replayed
        async with serving(QUOTA, server, tmp_path / "quota.log"):
            line = ["--url", server.url, "dead", "replay", "--all", "--service", "quota"]
            await asyncio.to_thread(run, line)
        _, report = await doctor(capsys, server.url)

    # then nothing is wrong any more
    assert report["dead letters"] == ("note", "2, of quota; in the last day no service failed")


async def test_a_bucket_that_had_more_copies_once_is_as_it_should_be(
    server: NatsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    # given buckets that are still synced, as with more copies
    bus = await connect(server.url, "test")
    for name, config in streams().items():
        synced = {key: value for key, value in config.items() if key != "persist_mode"}
        await api.request(bus, f"$JS.API.STREAM.CREATE.{name}", synced)
    await provision(bus)
    await bus.close()

    _, report = await doctor(capsys, server.url)

    assert [check for check in report if check.startswith("stream ")] == []


async def test_settings_with_which_a_stream_loses_messages_are_found(
    server: NatsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    async with connected(server.url) as connection:
        # given a log that somebody has set to forget
        config = {**streams()[STREAM], "max_age": 3_600_000_000_000, "max_msgs": 10}
        await api.request(connection, f"$JS.API.STREAM.UPDATE.{STREAM}", config)
        _, report = await doctor(capsys, server.url)
        assert report["stream NODEPOOL"] == (
            "problem",
            "max_age, max_msgs are not as the services set them",
        )

        # when a service starts, as is advised
        await provision(connection)
        _, report = await doctor(capsys, server.url)
    assert "stream NODEPOOL" not in report


async def test_a_password_in_two_places_is_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text("x")
    monkeypatch.setenv("NODEPOOL_PASSWORD_FILE", str(tmp_path / "password"))

    code, report = await doctor(capsys, f"nats://a:hunter2@{HOST}:1")

    assert (code, report) == (
        1,
        {
            "settings": (
                "problem",
                "NODEPOOL_PASSWORD_FILE: the address holds a password too; write it as"
                " nats://USER@HOST:PORT",
            )
        },
    )


async def test_doctor_ends_for_a_user_who_may_not_read_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given a user who may not make consumers
    port = free_port()
    settings = (
        "accounts { a: { jetstream: true, users: [{ user: reader, password: x, permissions: {"
        ' publish: { deny: ["$JS.API.CONSUMER.CREATE.>"] } } },'
        " { user: all, password: x }] } }\nno_auth_user: all"
    )
    with running(tmp_path, port, settings):
        here = NatsServer(tmp_path / "unused", port, Path("unused"))
        async with serving(QUOTA, here, tmp_path / "quota.log"):
            # when the doctor looks as that user, then it comes to an end
            async with asyncio.timeout(2 * PATIENCE_S):
                _, report = await doctor(capsys, f"nats://reader:x@{HOST}:{port}")
    assert report["service quota"] == ("problem", "cannot be looked at: no reply in time")


async def test_a_server_that_falls_silent_ends_the_examination(
    server: NatsServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodepool.client.doctor.examination.REPLY_S", 1.0)

    async with connected(server.url), stalling(server.url, BEGINNING) as url:
        async with asyncio.timeout(2 * PATIENCE_S):
            code, report = await doctor(capsys, url)
    assert (code, report["server"]) == (1, ("problem", "it does not reply any more"))


async def test_commands_that_do_not_reach_the_log_are_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given a server that sends commands elsewhere
    port = free_port()
    with running(tmp_path, port, 'mappings = { "np.cmd.demo.>": "elsewhere.>" }'):
        async with connected(f"nats://{HOST}:{port}"):
            _, report = await doctor(capsys, f"nats://{HOST}:{port}")
    status, text = report["commands of demo"]
    assert (status, text.startswith("they do not reach the log: ")) == ("problem", True)


async def test_each_address_of_a_name_is_tried(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    if len({place[4] for place in socket.getaddrinfo("localhost", port)}) < 2:
        pytest.skip("localhost has one address here: two are needed, such as 127.0.0.1 and ::1")

    # when nothing listens on any of them
    _, report = await doctor(capsys, f"nats://localhost:{port}")
    assert report[f"address nats://localhost:{port}"] == (
        "problem",
        f"nothing listens on port {port}: Connection refused",
    )

    # and when something listens on one
    with socket.create_server((HOST, port)):
        _, report = await doctor(capsys, f"nats://localhost:{port}")
    assert report[f"address nats://localhost:{port}"] == ("ok", f"{HOST} takes connections")


@needs_openssl
def test_a_server_is_found_whose_certificate_has_another_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a server with a certificate for the names of a Service in its own namespace
    made = certificates(tmp_path, "DNS:nats-0.nats")
    port = free_port()
    monkeypatch.setenv("NODEPOOL_CA_FILE", str(made.ca))
    with running(tmp_path, port, encrypted(made)):
        # when it is asked for by another, as through a forwarded port
        code = run(["--url", f"tls://localhost:{port}", "doctor"])

    # then it is said what to do, which is not to trust another authority
    shown = capsys.readouterr().out
    assert code == 1
    assert "certificate is not valid for 'localhost'" in shown
    assert "-> connect to a name that its certificate has, or have the certificate name" in shown


@needs_openssl
async def test_a_certificate_that_is_soon_over_is_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given certificates of two days
    made = certificates(tmp_path)
    port = free_port()
    monkeypatch.setenv("NODEPOOL_CA_FILE", str(made.ca))
    monkeypatch.setenv("NODEPOOL_CERT_FILE", str(made.certificate))
    monkeypatch.setenv("NODEPOOL_KEY_FILE", str(made.key))
    with running(tmp_path, port, encrypted(made)):
        _, report = await doctor(capsys, f"tls://{HOST}:{port}")

    for check in ("NODEPOOL_CERT_FILE", "certificate of the server"):
        status, text = report[check]
        assert (status, text.startswith("it is valid until ")) == ("note", True)
