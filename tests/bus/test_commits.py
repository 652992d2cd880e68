"""How the log is provisioned and written on a real server: all of a commit, or nothing of it."""

import asyncio
import gc
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from bus.harness import (
    PATIENCE_S,
    connected,
    fill,
    freeze,
    read_all,
    restart,
    unreachable,
    until,
)
from nodepool.contract.commands import SetQuota
from nodepool.contract.events import QuotaSet
from nodepool.contract.log import Entry, LogId
from nodepool.contract.messages import Envelope, Message, envelope_of
from nodepool.contract.subjects import subject_of
from nodepool.engine.bounds import OUTPUTS_MAX
from nodepool.engine.folded import Folded
from nodepool.engine.proposal import Input, Processed, Proposal
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.commits import MARK, Committer
from nodepool.nats.log.publisher import Publisher
from nodepool.nats.log.streams import STREAM, provision, streams
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import Conflict, InDoubt, ServerRefusal
from nodepool.service import Service

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LOG = LogId("6f")
LONG_S = 2 * PATIENCE_S
"""How long a reply is waited for where the test is that it is not: longer than a test waits."""


def nothing(state: None, *_: object) -> None:
    return state


CLERK: Service[None, SetQuota, QuotaSet] = Service(
    name="clerk", hears=SetQuota, says=QuotaSet, initial=None, evolve=nothing
)


def output(id: str, limit: int) -> Envelope[Message]:
    event = QuotaSet(org="acme", zone="z", instance_type="t", limit=limit, granted=0)
    return envelope_of(QuotaSet).model_construct(id=id, type="QuotaSet", source="clerk", data=event)


def proposal(
    ids: Sequence[str], *, position: int = 1, expected_sequence: int = 0
) -> Proposal[None, SetQuota]:
    """A proposal with an output for each of these ids."""
    command = SetQuota(org="acme", zone="z", instance_type="t", limit=1)
    entry = Entry(position, NOW, subject_of(command, ""), b"{}", {})
    outputs = tuple(output(id, number) for number, id in enumerate(ids))
    processed = Processed(Input(entry, SetQuota), outputs, None)
    return Proposal("clerk", (processed,), position, expected_sequence, Folded(None), True, LOG)


async def stored(connection: Connection) -> list[str]:
    """The ids of all messages in the log, and `commit` for each commit record."""
    return [
        "commit" if entry.subject.startswith("np.commit.") else str(json.loads(entry.content)["id"])
        for entry in await read_all(connection)
    ]


async def sent(connection: Connection, before: int) -> None:
    """Returns once the client has sent more than so many messages."""
    await until(lambda: connection.stats["out_msgs"] > before)
    await until(lambda: connection.pending_data_size == 0)


# --- commits ------------------------------------------------------------------------------------


async def test_a_commit_stores_its_outputs_in_their_order_and_its_record_last(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given an empty log
        # when a commit of three outputs is stored
        proposed = proposal(["a", "b", "c"], position=17)
        position = await Committer(connection).commit(proposed)

        # then the outputs lie there in their order, and then the record with its position
        entries = await read_all(connection)
        assert await stored(connection) == ["a", "b", "c", "commit"]
        assert [entry.content for entry in entries[:3]] == [
            message.content for message in proposed.messages
        ]
        assert entries[3].subject == "np.commit.clerk"
        assert json.loads(entries[3].content) == {
            "position": 17,
            "outputs": 3,
            "follows": 0,
            "log": LOG,
        }
        assert position == entries[3].position == 4


async def test_a_commit_without_outputs_stores_the_record_alone(server: NatsServer) -> None:
    async with connected(server.url) as connection:
        # given a commit
        committer = Committer(connection)
        expected_sequence = await committer.commit(proposal(["a"], position=3))

        # when one without outputs follows it
        position = await committer.commit(
            proposal([], position=9, expected_sequence=expected_sequence)
        )

        # then the log holds one record more, whose position is the next expected sequence
        assert await stored(connection) == ["a", "commit", "commit"]
        assert json.loads((await read_all(connection))[-1].content) == {
            "position": 9,
            "outputs": 0,
            "follows": expected_sequence,
            "log": LOG,
        }
        assert position == 3


async def test_the_most_outputs_that_a_decision_may_have_fit_in_one_commit(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given as many outputs as one decision may have
        ids = [f"a{number}" for number in range(OUTPUTS_MAX)]

        # when it is committed
        await Committer(connection).commit(proposal(ids))

        # then all of it is there
        assert await stored(connection) == [*ids, "commit"]


@pytest.mark.parametrize("ids", [["b", "c"], []], ids=["with-outputs", "cursor-only"])
async def test_a_record_says_which_process_has_made_it(server: NatsServer, ids: list[str]) -> None:
    async with connected(server.url) as connection:
        committer = Committer(connection, "6f")

        # when it has stored a commit, and the log is read
        await committer.commit(proposal(ids))
        *outputs, record = await read_all(connection)

        # then the record says so, and the outputs do not
        assert record.headers[MARK] == "6f"
        assert [each.headers for each in outputs] == [{} for _ in ids]


@pytest.mark.parametrize("ids", [["b", "c"], []], ids=["with-outputs", "cursor-only"])
async def test_a_commit_with_an_old_expected_sequence_is_a_conflict_and_stores_nothing(
    server: NatsServer, ids: list[str]
) -> None:
    async with connected(server.url) as connection:
        # given a service whose last commit was another replica's
        committer = Committer(connection)
        await committer.commit(proposal(["a"]))

        # when a replica that has not seen it commits
        with pytest.raises(Conflict):
            await committer.commit(proposal(ids, expected_sequence=0))

        # then the log is as it was
        assert await stored(connection) == ["a", "commit"]


async def test_an_id_that_was_used_before_does_not_keep_a_commit_from_being_stored(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given a message of another program with the id that an output will have
        headers = {"Nats-Msg-Id": "a"}
        await api.publish_event(connection, "np.dead.note", b'{"id": "note"}', headers)

        # when a service commits that output among others
        await Committer(connection).commit(proposal(["b", "a", "c"]))

        # then all of it is there
        assert await stored(connection) == ["note", "b", "a", "c", "commit"]


async def test_services_that_commit_at_the_same_time_do_not_conflict(server: NatsServer) -> None:
    async with connected(server.url) as connection:
        # given two services that commit at the same time, again and again
        async def commit(name: str) -> None:
            expected_sequence, committer = 0, Committer(connection)
            for number in range(20):
                ids = [f"{name}{number}.{part}" for part in range(3)]
                made = proposal(ids, position=number, expected_sequence=expected_sequence)
                renamed = replace(made, service=name)
                expected_sequence = await committer.commit(renamed)

        # when both are done
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(commit("one"), commit("two"))

        # then every commit of both lies in the log in one piece
        ids = await stored(connection)
        assert len(ids) == 2 * 20 * 4
        pieces = {tuple(ids[first : first + 4]) for first in range(0, len(ids), 4)}
        for name in ("one", "two"):
            for number in range(20):
                assert (*(f"{name}{number}.{part}" for part in range(3)), "commit") in pieces


async def test_a_commit_whose_connection_is_lost_is_in_doubt_at_once(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodepool.nats.log.commits.REPLY_TIMEOUT_S", LONG_S)

    async with connected(server.url) as connection:
        # given a commit that a stopped server does not reply to
        committer = Committer(connection)
        freeze(server)
        before = connection.stats["out_msgs"]
        committing = asyncio.create_task(committer.commit(proposal(["a"])))
        await sent(connection, before)

        # when the server is killed
        await asyncio.to_thread(server.kill)

        # then the commit does not wait for the reply that cannot come
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(InDoubt):
                await committing
        await asyncio.to_thread(server.start)
        await until(lambda: connection.is_connected)

        # and once the server is back, all of it is in the log, or nothing
        assert await stored(connection) in ([], ["a", "commit"])


async def test_a_commit_is_whole_or_not_there_however_often_the_server_is_killed_during_it(
    server: NatsServer,
) -> None:
    size, commits = 50, 0
    async with connected(server.url) as connection:
        # given a service that commits batch after batch, and reads on when in doubt
        committer, enough = Committer(connection), asyncio.Event()

        async def commit() -> None:
            nonlocal commits
            expected_sequence, in_doubt = 0, False
            while in_doubt or not enough.is_set():
                ids = [f"{commits}.{part}" for part in range(size)]
                try:
                    expected_sequence = await committer.commit(
                        proposal(ids, expected_sequence=expected_sequence)
                    )
                except (InDoubt, Conflict):  # One in doubt may be stored after all, even later.
                    await until(lambda: connection.is_connected)
                    last = await api.last_message(connection, STREAM, "np.commit.clerk")
                    in_doubt = last is None or last.position == expected_sequence
                    if last is None or in_doubt:
                        continue
                    expected_sequence = last.position
                in_doubt = False
                commits += 1

        committing = asyncio.create_task(commit())

        # when the server is killed again and again in the middle of that
        for round_ in range(1, 6):
            goal = round_ * 8
            await until(lambda goal=goal: commits >= goal or committing.done())
            await restart(server)
        enough.set()
        async with asyncio.timeout(PATIENCE_S):
            await committing

        # then each batch lies in the log once, whole and in one piece
        ids = await stored(connection)
        assert set(Counter(ids).values()) == {1, commits}
        for number in range(commits):
            first = number * (size + 1)
            piece = [f"{number}.{part}" for part in range(size)]
            assert ids[first : first + size + 1] == [*piece, "commit"]


# --- what is published outside commits ----------------------------------------------------------


async def test_a_publisher_returns_each_position_and_raises_each_conflict(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given a publisher that does not wait for a reply before it sends more
        publisher = Publisher(connection, window=4)
        await publisher.open()
        sent = [await publisher.send("np.cmd.a.b.c.D", b"%d" % n) for n in range(20)]

        # when one of its messages has a condition that does not hold
        stale = {"Nats-Expected-Last-Subject-Sequence": "7"}
        with pytest.raises(Conflict):
            await publisher.publish("np.cmd.a.b.c.D", b"", stale)

        # then that one is a conflict, and the others have their positions
        assert [await waiting for waiting in sent] == list(range(1, 21))


async def test_a_conflict_for_which_nobody_waits_any_more_is_not_reported(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given a message with a condition that does not hold, for which nobody waits
        reported: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(str(context["message"])))
        publisher = Publisher(connection)
        await publisher.open()
        stale = {"Nats-Expected-Last-Subject-Sequence": "7"}
        await publisher.send("np.cmd.a.b.c.D", b"", stale)

        # when the reply is there, which the one to a later message shows
        await publisher.publish("np.cmd.a.b.c.D", b"")
        gc.collect()

        # then asyncio has nothing to say about it
        assert reported == []


async def test_a_publisher_that_loses_its_connection_has_all_its_messages_in_doubt(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given messages that a stopped server does not reply to
        publisher = Publisher(connection)
        await publisher.open()
        freeze(server)
        sent = [await publisher.send("np.cmd.a.b.c.D", b"%d" % n) for n in range(20)]

        # when the server is killed
        await asyncio.to_thread(server.kill)

        # then each of them is in doubt, and more can be published
        async with asyncio.timeout(PATIENCE_S):
            results = await asyncio.gather(*sent, return_exceptions=True)
        assert {type(result) for result in results} == {InDoubt}
        await asyncio.to_thread(server.start)
        async with asyncio.timeout(PATIENCE_S):
            assert await publisher.publish("np.cmd.a.b.c.D", b"") > 0


async def test_a_publish_whose_connection_is_lost_is_in_doubt_at_once(server: NatsServer) -> None:
    async with connected(server.url) as connection:
        # given a message that a stopped server does not reply to
        freeze(server)
        before = connection.stats["out_msgs"]
        publish = api.publish(connection, "np.cmd.a.b.c.D", b"", timeout_s=LONG_S)
        publishing = asyncio.create_task(publish)
        await sent(connection, before)

        # when the server is killed
        await asyncio.to_thread(server.kill)

        # then it does not wait for the reply that cannot come
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(InDoubt):
                await publishing


# --- how the streams are provisioned --------------------------------------------------------------


@pytest.mark.parametrize("name", list(streams()))
async def test_every_stream_has_the_settings_that_it_should_have(
    server: NatsServer, name: str
) -> None:
    # given a bus that was just provisioned
    async with connected(server.url) as connection:
        # when the configuration of a stream is read from the server
        config = (await api.request(connection, f"$JS.API.STREAM.INFO.{name}"))["config"]
        assert isinstance(config, dict)

        # then every setting is as it should be
        wanted = streams()[name]
        assert {setting: config.get(setting) for setting in wanted} == dict(wanted)


async def test_provisioning_a_bus_again_changes_nothing_and_loses_nothing(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given a bus that is in use
        await fill(connection, [("np.cmd.a.b.c.D", b"1"), ("np.cmd.a.b.c.D", b"2")])
        await api.publish(connection, "$KV.nodes.a", b"object")

        # when it is provisioned again, several times at once
        await asyncio.gather(*(provision(connection) for _ in range(5)))

        # then all is still there
        assert [entry.content for entry in await read_all(connection)] == [b"1", b"2"]
        assert len(await read_all(connection, "KV_nodes")) == 1


async def test_a_stream_with_other_settings_is_updated(server: NatsServer) -> None:
    async with connected(server.url) as connection:
        # given a log in use that has another setting
        other = {**streams()[STREAM], "duplicate_window": 60_000_000_000}
        await api.request(connection, f"$JS.API.STREAM.UPDATE.{STREAM}", other)
        await fill(connection, [("np.cmd.a.b.c.D", b"1")])

        # when a service starts and provisions the bus
        await provision(connection)

        # then the setting is as it should be, and nothing is lost
        config = (await api.request(connection, f"$JS.API.STREAM.INFO.{STREAM}"))["config"]
        assert isinstance(config, dict)
        assert config["duplicate_window"] == streams()[STREAM]["duplicate_window"]
        assert len(await read_all(connection)) == 1


async def test_no_message_can_be_removed_from_the_midst_of_the_log(server: NatsServer) -> None:
    async with connected(server.url) as connection:
        # given a log
        await fill(connection, [("np.cmd.a.b.c.D", b"1"), ("np.cmd.a.b.c.D", b"2")])

        # when a client with every permission on the server deletes from it
        with pytest.raises(ServerRefusal):
            await api.request(connection, f"$JS.API.STREAM.MSG.DELETE.{STREAM}", {"seq": 2})

        # then the server refuses, and all is still there
        assert [entry.content for entry in await read_all(connection)] == [b"1", b"2"]


async def test_an_unreachable_server_is_one_line_with_the_address_and_the_remedy() -> None:
    # given an address where no server listens
    # when a client connects
    error = await unreachable("nats://127.0.0.1:1", "Connection refused")

    # then the message names the address and says what to do
    assert str(error) == (
        "no NATS server answers at nats://127.0.0.1:1 (Connection refused): "
        "start one with 'make run', or set NODEPOOL_URL"
    )
