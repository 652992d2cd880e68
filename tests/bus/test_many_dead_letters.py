"""Dead letters beside much else: what is read of the log, and what is found in it."""

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from bus.broken import BROKEN, FAILING
from bus.harness import connected, fill, limit, outcome, send, serving
from nodepool.client import Client
from nodepool.client.doctor.letters import dead_letters
from nodepool.client.replaying import LATER_MAX
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.connection import Connection

ACCEPTED = "np.evt.quota.acme._._.CommandAccepted"


def accepted(*ids: str, cause: int = 0) -> Sequence[tuple[str, bytes]]:
    """Outcomes of commands with these ids, all of which lie at the same position."""
    envelopes = [{"correlationid": id, "causeposition": cause, "data": {}} for id in ids]
    return [(ACCEPTED, json.dumps(each).encode()) for each in envelopes]


async def failed(connection: Connection, server: NatsServer, log: Path) -> None:
    """Has quota fail on the command c1."""
    async with serving(BROKEN, server, log):
        await send(connection, limit(FAILING), "c1")
        await outcome(connection, "c1")


async def test_of_old_dead_letters_nothing_is_read(server: NatsServer) -> None:
    async with connected(server.url) as connection:
        # given many dead letters, and a newer one
        await fill(connection, [("np.dead.quota", b"{}")] * 3_000)
        last = await api.message_at(connection, STREAM, 3_000)
        assert last is not None
        await fill(connection, [("np.dead.quota", b'{"content": "new"}')])

        # when those are asked for that are newer
        async with Client(server.url) as client:
            before = client.session.messages_received
            letters, _ = await client.admin.dead_letters.list(
                since=last.time + timedelta(microseconds=1)
            )
            read = client.session.messages_received - before

    # then it comes, and nearly nothing else
    assert [letter.content.encode() for letter in letters] == [b"new"]
    assert read < 50


async def test_a_command_that_was_accepted_after_a_thousand_others_is_done(
    server: NatsServer, tmp_path: Path
) -> None:
    async with connected(server.url) as connection, Client(server.url) as client:
        # given a command on which quota failed, and many that were accepted since
        await failed(connection, server, tmp_path / "quota.log")
        await fill(connection, accepted(*(f"o{n}" for n in range(LATER_MAX + 1))))
        ((letter,), _) = await client.admin.dead_letters.list()
        late = await client.admin.replays.examine(letter)
        assert (late.is_stale, late.why_not) == (
            True,
            f"more than {LATER_MAX} commands were accepted later, and may be undone",
        )
        assert (await dead_letters(client.admin)).status == "problem"

        # when it is accepted itself
        await fill(connection, accepted("c1"))

        # then it is done, and nothing is wrong
        position = await api.last_position(connection, STREAM)
        done = await client.admin.replays.examine(letter)
        assert (done.entry, done.is_stale, done.done_at) == (None, False, position)
        finding = await dead_letters(client.admin)
        assert (finding.status, finding.text) == (
            "note",
            "1, of quota; in the last day no service failed",
        )


async def test_the_newest_of_what_was_accepted_later_is_the_change_that_would_be_undone(
    server: NatsServer, tmp_path: Path
) -> None:
    async with connected(server.url) as connection, Client(server.url) as client:
        # given a command on which quota failed, and many that were accepted since
        await failed(connection, server, tmp_path / "quota.log")
        await send(connection, limit(5), "c2")
        later = await api.last_position(connection, STREAM)
        await fill(connection, accepted(*(f"o{n}" for n in range(LATER_MAX)), cause=later))
        ((letter,), _) = await client.admin.dead_letters.list()

        # when it is looked at
        before = client.session.messages_received
        replay = await client.admin.replays.examine(letter)
        read = client.session.messages_received - before

        # then the newest is named, and no other is looked for where it lies
        position = await api.last_position(connection, STREAM)
        assert replay.is_stale
        assert replay.why_not == f"it would undo what was accepted later, at position {position}"
        assert read < LATER_MAX + 100


async def test_what_there_is_no_time_to_look_at_is_a_problem_of_its_own(
    server: NatsServer, tmp_path: Path
) -> None:
    async with connected(server.url) as connection, Client(server.url) as client:
        # given a dead letter
        await failed(connection, server, tmp_path / "quota.log")

        # when there is no time to look at it
        finding = await dead_letters(client.admin, within_s=0)

        # then it is not taken for one on which no service failed
        assert (finding.status, finding.text, finding.fix) == (
            "problem",
            "1, of quota; there was no time to look at all of the last day",
            "nodepool dead list --since 24h",
        )


async def test_letters_beyond_those_that_are_looked_at_are_named(server: NatsServer) -> None:
    async with connected(server.url) as connection, Client(server.url) as client:
        # given many refused commands of which no log knows, newer than one that is an event
        stray = {"subject": "np.cmd.acme._._.SetQuota", "position": 1}
        event = {"subject": "np.evt.quota.acme._._.QuotaSet", "position": 1}
        await fill(connection, [("np.dead.quota", json.dumps(event).encode())])
        await fill(connection, [("np.dead.quota", json.dumps(stray).encode())] * 101)

        # when they are looked at
        finding = await dead_letters(client.admin)

        # then it is plain that there are others
        assert (finding.status, finding.text) == (
            "note",
            "102, of quota; no service failed on the newest 100 of the last day",
        )
