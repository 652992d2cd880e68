"""Attacks of tenants on a real gateway with the generated accounts: to read, and to use up."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bus.accounts import CLUSTER, ORG, OTHER_CLUSTER, OTHER_ORG, guarded_server
from bus.asking import opened
from bus.guarded_gateway import MANIFEST, ask, at_work, user
from bus.harness import PATIENCE_S, read_all, until
from gateway.host.door import NEW_OBJECT_BYTES
from gateway.host.history import READERS_MAX, WAITING_MAX
from gateway.host.settings import GatewaySettings
from nodepool.auth.accounts import LIMITS, OPERATOR
from nodepool.contract.commands import COMMANDS
from nodepool.host.settings import Settings
from nodepool.nats.log.api import last_position
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.library import NatsError
from support.constants import ZONE

PLENTY = {"queries_per_second": 100_000, "queries_burst": 100_000}
PAGES = 30
"""How many pages of history somebody asks for at once."""
COMMANDS_OF_A_PAGE = 20
"""The number of commands on a page of history; each command is read with its outcome."""
SECRET = "s3cret"  # A label of an object of the other organisation.
SCALE = f"np.cmd.{ORG}.{CLUSTER}.train.ScaleNodePool"
UNHEARD, UNHEARD_S = f"{SCALE}.more", 2.0
"""A subject on which no gateway answers, and how long an answer is awaited all the same."""
QUESTIONS: tuple[tuple[str, Mapping[str, object]], ...] = (
    ("Get", {"kind": "nodepools", "cluster": "CLUSTER", "name": "POOL"}),
    ("Get", {"kind": "clusters", "name": "CLUSTER"}),
    ("Get", {"kind": "nodes", "cluster": "CLUSTER", "name": "POOL"}),
    ("List", {"kind": "nodepools", "cluster": "CLUSTER"}),
    ("List", {"kind": "nodepools", "fieldSelector": "metadata.name=POOL"}),
    ("Events", {"cluster": "CLUSTER"}),
    ("Events", {"cluster": "CLUSTER", "pool": "POOL"}),
    ("Messages", {"cluster": "CLUSTER", "pool": "POOL", "names": ["NodePoolValidated"]}),
    ("Audit", {"cluster": "CLUSTER", "pool": "POOL"}),
    ("Audit", {"cluster": "CLUSTER", "pool": "POOL", "last": True}),
    ("Explain", {"cluster": "CLUSTER", "pool": "POOL"}),
)
"""Queries that name an object by placeholders."""
TIMED = (QUESTIONS[0], QUESTIONS[5], QUESTIONS[10])
GUESSES = (
    *(f"{ORG}.{CLUSTER}.train", f"{CLUSTER}.train", f"../{ORG}/{CLUSTER}/train"),
    *(f"{CLUSTER}~train", "*", ">", f"{ORG}~{CLUSTER}", f"_.{ORG}", "train\u0000", ""),
)
"""Names and keys with which somebody may try to reach an object of another organisation."""
SELECTORS = ("team", f"team={SECRET}", f"team in ({SECRET})", f"team!={SECRET}", "!team")


def asked(
    fields: Mapping[str, object], cluster: str = CLUSTER, pool: str = "train"
) -> dict[str, object]:
    """The fields of a query about these names."""
    return {
        name: each.replace("CLUSTER", cluster).replace("POOL", pool)
        if isinstance(each, str)
        else each
        for name, each in fields.items()
    }


async def error_in(reader: asyncio.StreamReader) -> str:
    """The first error that the server writes on a connection."""
    async with asyncio.timeout(PATIENCE_S):
        return await _error_in(reader)


async def _error_in(reader: asyncio.StreamReader) -> str:
    while (line := await reader.readline()) and not line.startswith(b"-ERR"):
        pass
    return line.decode()


async def given_a_node_pool(
    agent: Connection, editor: Connection, owner: Connection, position: Callable[[], Awaitable[int]]
) -> None:
    """The first organisation has a cluster and a NodePool with a secret label, and both see it."""
    manifest = {**MANIFEST, "metadata": {"name": "train", "labels": {"team": SECRET}}}
    await ask(agent, f"np.cmd.{ORG}.{CLUSTER}._.RegisterCluster", zone=ZONE)
    await ask(editor, f"np.cmd.{ORG}.{CLUSTER}.train.ApplyNodePool", **manifest)
    await until(lambda: _has_pool(editor))
    last = await position()
    await ask(owner, f"np.api.{OTHER_ORG}.List", kind="nodepools", notOlderThan=last)


async def _has_pool(editor: Connection) -> bool:
    listed = await ask(editor, f"np.api.{ORG}.List", kind="nodepools")
    return SECRET in json.dumps(listed.get("items"))


async def test_a_foreign_name_is_answered_like_a_name_that_nobody_has(tmp_path: Path) -> None:
    with guarded_server(tmp_path) as server:
        await server.until_ready()
        await server.provision()
        async with (
            at_work(server, tmp_path, "validator", "aggregator", **PLENTY),
            user(server, "agent") as agent,
            user(server, "editor") as editor,
            user(server, "other-owner") as other,
            user(server, OPERATOR) as operator,
        ):
            # given a NodePool of another organisation
            await given_a_node_pool(agent, editor, other, lambda: last_position(operator, STREAM))

            async def answer(query: str, fields: Mapping[str, object], *names: str) -> str:
                reply = await ask(other, f"np.api.{OTHER_ORG}.{query}", **asked(fields, *names))
                for name in ("position", "revision", "after", "time"):
                    reply.pop(name, None)
                text = json.dumps(reply)
                for name, placeholder in zip(names, ("CLUSTER", "POOL"), strict=True):
                    text = text.replace(name, placeholder)
                return text

            for query, fields in QUESTIONS:
                # when somebody asks for it, and for what is nowhere
                foreign = await answer(query, fields, CLUSTER, "train")
                nowhere = await answer(query, fields, "nope", "absent")

                # then the answers are the same
                assert foreign == nowhere, query

            for query, fields in TIMED:
                # and take as long: on a busy machine, the shortest of many tells most
                times: dict[str, list[float]] = {CLUSTER: [], "nope": []}
                for _ in range(100):
                    for cluster, spent in times.items():
                        began = time.perf_counter()
                        await answer(query, fields, cluster, "train")
                        spent.append(time.perf_counter() - began)
                first, second = map(min, times.values())
                assert 0.5 < first / second < 2, (query, first, second)


async def test_no_query_of_an_organisation_returns_anything_of_another(tmp_path: Path) -> None:
    with guarded_server(tmp_path) as server:
        await server.until_ready()
        await server.provision()
        async with (
            at_work(server, tmp_path, "validator", "aggregator", **PLENTY),
            user(server, "agent") as agent,
            user(server, "editor") as editor,
            user(server, "other-owner") as other,
            user(server, OPERATOR) as operator,
        ):
            # given a NodePool of another organisation
            await given_a_node_pool(agent, editor, other, lambda: last_position(operator, STREAM))
            listed = await ask(other, f"np.api.{OTHER_ORG}.List", kind="nodepools")
            epoch, _, _ = str(listed["revision"]).rpartition("-")

            # when somebody guesses keys, selects, watches from the beginning, and goes on from
            # a page that is not its own
            queries: list[tuple[str, dict[str, object]]] = [
                (query, asked(fields, guess, guess))
                for query, fields in QUESTIONS
                for guess in GUESSES
            ]
            kind = {"kind": "nodepools"}
            queries += [("List", {**kind, "labelSelector": each}) for each in SELECTORS]
            queries += [("List", {**kind, "continue": each}) for each in GUESSES]
            watches = ({}, *({"labelSelector": each} for each in SELECTORS))
            queries += [
                ("Watch", {**kind, **each, "since": f"{epoch}-0", "waitSeconds": 0.0})
                for each in watches
            ]
            queries += [("Audit", {}), ("Audit", {"after": 1, "limit": 1000})]
            answers = [
                await ask(other, f"np.api.{OTHER_ORG}.{query}", **fields)
                for query, fields in queries
            ]

            # then no answer has anything of it
            for (query, fields), answer in zip(queries, answers, strict=True):
                found = [answer.get(name, []) for name in ("items", "changes")]
                assert found == [[], []], (query, fields)
                assert "object" not in answer
                assert SECRET not in json.dumps(answer) or SECRET in json.dumps(fields)


async def test_with_the_key_of_an_agent_somebody_speaks_for_its_cluster_alone(
    tmp_path: Path,
) -> None:
    with guarded_server(tmp_path) as server:
        await server.until_ready()
        await server.provision()
        async with (
            at_work(server, tmp_path),
            user(server, "agent") as thief,
            user(server, OPERATOR) as operator,
        ):
            # given the key of the agent of a cluster
            places = ((ORG, OTHER_CLUSTER), (OTHER_ORG, CLUSTER), (OTHER_ORG, OTHER_CLUSTER))

            # when somebody sends every command and observation for other clusters, and to JetStream
            sent = [
                f"np.cmd.{org}.{cluster}.train.{name}"
                for org, cluster in places
                for name in COMMANDS
            ]
            sent += [f"np.evt.agent.{org}.{cluster}.train.NodeReported" for org, cluster in places]
            sent += [f"$JS.API.STREAM.{verb}.{STREAM}" for verb in ("INFO", "DELETE", "MSG.GET")]
            sent += [f"$JS.API.DIRECT.GET.{STREAM}", "$SRV.PING", "$SYS.REQ.SERVER.PING"]
            sent += [f"np.door.cmd.{ORG}.{CLUSTER}.train.ScaleNodePool", f"np.api.{OTHER_ORG}.List"]
            for subject in sent:
                await thief.publish(subject, b"{}", reply=f"_INBOX_agent.{len(subject)}")
            await thief.flush()

            # then the server denies all of it, and nothing is stored
            await until(lambda: len(server.violations()) >= len(sent))
            assert await read_all(operator) == []

            # and the gateway tells it nothing about other clusters
            for query, fields in QUESTIONS:
                about = asked(fields, OTHER_CLUSTER)
                refusal = await ask(thief, f"np.api.{ORG}.{query}", **about)
                assert refusal["reason"] == "Forbidden", (query, about)


async def test_an_organisation_cannot_use_up_the_connections_of_others(tmp_path: Path) -> None:
    with guarded_server(tmp_path) as server:
        await server.until_ready()
        await server.provision()
        async with at_work(server, tmp_path), AsyncExitStack() as stack:
            # given an organisation with as many connections as it may have
            key = server.identities["viewer"].key
            for _ in range(LIMITS["max_connections"]):
                reader, writer = await opened(server.port, key)
                stack.callback(writer.close)
                writer.write(b"PING\r\n")
                while await reader.readline() != b"PONG\r\n":
                    pass

            # when it makes one more
            reader, writer = await opened(server.port, key)
            stack.callback(writer.close)

            # then that is refused
            assert "maximum account active connections exceeded" in await error_in(reader)

            # and another organisation is served
            async with user(server, "other-owner") as other:
                listed = await ask(other, f"np.api.{OTHER_ORG}.List", kind="nodepools")
                assert listed["items"] == []


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (
            b"".join(
                b"SUB np.evt.*.acme.> %d\r\n" % number
                for number in range(LIMITS["max_subscriptions"] + 1)
            ),
            "maximum subscriptions exceeded",
        ),
        (
            b"PUB %b %d\r\n" % (SCALE.encode(), LIMITS["max_payload"] + 1),
            "Maximum Payload Violation",
        ),
    ],
    ids=["subscriptions", "payload"],
)
async def test_a_connection_cannot_subscribe_or_send_without_limit(
    tmp_path: Path, lines: bytes, error: str
) -> None:
    with guarded_server(tmp_path) as server:
        await server.until_ready()
        # given a connection of an editor
        reader, writer = await opened(server.port, server.identities["editor"].key)

        # when it exceeds a limit
        writer.write(lines)

        # then the server refuses that
        assert error in await error_in(reader)
        writer.close()


async def test_commands_that_are_refused_add_nothing_to_the_log(tmp_path: Path) -> None:
    with guarded_server(tmp_path) as server:
        await server.until_ready()
        await server.provision()
        async with (
            at_work(server, tmp_path, messages_per_second=10_000, messages_burst=10_000),
            user(server, "editor") as editor,
            user(server, OPERATOR) as operator,
        ):
            # given large commands that are wrong in many ways
            filler = "x" * (200 << 10)
            wrong: list[tuple[str, dict[str, object]]] = [
                (SCALE, {"targetNodes": filler}),
                (SCALE, {"targetNodes": 1, "unknown": filler}),
                (SCALE, {"targetNodes": 1, "unknown": filler * 2}),
                (UNHEARD, {"filler": filler}),
                (SCALE.replace("train", "Train!"), {"filler": filler}),
            ]

            # when an editor sends many of them
            async def send(subject: str, content: dict[str, object]) -> dict[str, object]:
                within_s = UNHEARD_S if subject == UNHEARD else None
                try:
                    async with asyncio.timeout(within_s):
                        return await ask(editor, subject, **content)
                except (NatsError, TimeoutError):
                    return {"reason": "NoResponders"}

            replies = await asyncio.gather(*(send(*each) for each in wrong * 20))

            # then each is refused, and the log is empty
            assert all("reason" in reply for reply in replies)
            assert [entry.subject for entry in await read_all(operator)] == []


async def test_who_reads_history_all_the_time_delays_one_page_of_another_by_a_turn(
    tmp_path: Path,
) -> None:
    with guarded_server(tmp_path) as server:
        await server.until_ready()
        await server.provision()
        async with (
            at_work(server, tmp_path, **PLENTY),
            user(server, "editor") as editor,
            user(server, "other-owner") as other,
        ):
            # given an organisation with commands, each of which is read with its outcome
            for number in range(COMMANDS_OF_A_PAGE):
                await ask(editor, SCALE, targetNodes=number)
            answered = list[float]()

            async def read() -> bool:
                page = await ask(editor, f"np.api.{ORG}.Audit", limit=COMMANDS_OF_A_PAGE)
                answered.append(time.monotonic())
                return "items" in page

            # when its user asks for many pages at once, and then somebody else for one
            asked = [asyncio.create_task(read()) for _ in range(PAGES)]
            await until(lambda: len(answered) >= READERS_MAX)
            before = len(answered)
            assert (await ask(other, f"np.api.{OTHER_ORG}.Audit", limit=COMMANDS_OF_A_PAGE))[
                "atEnd"
            ]

            # then that page comes after the pages that were being read, and before those that wait
            assert len(answered) - before <= 2 * READERS_MAX
            assert all(await asyncio.gather(*asked))

            # and nobody can have more pages waiting than there is room for
            many = [read() for _ in range(READERS_MAX + WAITING_MAX + 5)]
            assert (await asyncio.gather(*many)).count(False) == 5


async def test_new_names_are_bounded_because_the_server_keeps_each_in_memory(
    tmp_path: Path,
) -> None:
    with guarded_server(tmp_path) as server:
        await server.until_ready()
        await server.provision()
        async with (
            at_work(
                server,
                tmp_path,
                messages_per_second=10_000,
                messages_burst=10_000,
                bytes_per_hour=10 * NEW_OBJECT_BYTES,
            ),
            user(server, "editor") as editor,
            user(server, OPERATOR) as operator,
        ):
            # given tiny commands about NodePools with long names that nobody has
            names = [f"{number:03}{'x' * 200}" for number in range(100)]

            # when an editor sends them
            replies = await asyncio.gather(
                *(ask(editor, SCALE.replace("train", name), targetNodes=1) for name in names)
            )

            # then as many are stored as its budget has room for names, and that is few
            refused = [each for each in replies if each.get("reason") == "TooManyRequests"]
            assert await last_position(operator, STREAM) == len(names) - len(refused) == 9

    # and by default it is 8,192 names in an hour
    default = GatewaySettings(Settings(url=server.url), "").bytes_per_hour
    assert default // NEW_OBJECT_BYTES == 8_192
