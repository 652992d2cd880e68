"""`nodepool skip`: an operator has a service pass over an input that ends its process."""

import asyncio
import json
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from bus.harness import connected, ended, outcome, read_all, send, serving, until
from nodepool.cli.app import run
from nodepool.contract.commands import SetQuota
from nodepool.contract.outcomes import CommandOutcome
from nodepool.contract.subjects import subject_of
from nodepool.engine.replica import Replica
from nodepool.engine.snapshot import dump
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.skipping import skip, standing_of
from nodepool.nats.log.streams import STREAM, provision
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import Conflict
from nodepool.service import Context
from quota import Hears, Says
from quota.decide import SERVICE as QUOTA
from quota.state import State
from support.constants import H100, ZONE

POISON = 666
"""The limit at which the broken service ends its process."""


class Ended(BaseException):
    """What ends a process in the middle of a decision, as a bug of an extension module would."""


def broken(
    state: State, message: Hears, context: Context
) -> Generator[Says | CommandOutcome, State, None]:
    """As quota decides, but for one command."""
    if isinstance(message, SetQuota) and message.limit == POISON:
        raise Ended
    yield from QUOTA.decide(state, message, context)


BROKEN = replace(QUOTA, decide=broken)


def command(limit: int) -> SetQuota:
    return SetQuota(org="acme", zone=ZONE, instance_type=H100, limit=limit)


async def limits_said(connection: Connection) -> list[int]:
    """The limits that quota has set, in their order."""
    log = await read_all(connection)
    return [
        json.loads(entry.content)["data"]["limit"]
        for entry in log
        if entry.subject.endswith(".QuotaSet")
    ]


async def sent(connection: Connection, limit: int) -> int:
    """The position of a command to set this limit, which is sent now."""
    await send(connection, command(limit), f"c{limit}")
    last = await api.last_message(connection, STREAM, subject_of(command(limit), ""))
    assert last is not None
    return last.position


async def start_until_it_ends(server: NatsServer, folder: Path, times: int) -> None:
    """Starts the broken service, which ends each time that it meets its input."""
    for number in range(times):
        with pytest.raises(Ended):
            async with serving(BROKEN, server, folder / f"{number}.log", wait=False) as runtime:
                await ended(runtime)


async def nodepool(server: NatsServer, *words: str) -> int:
    """The exit code of a command line."""
    return await asyncio.to_thread(run, ["--url", server.url, *words])


async def test_an_operator_steps_over_an_input_that_ends_the_process_at_every_start(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with connected(server.url) as connection:
        # given a command among others that ends the process of quota
        for limit in (1, 2, POISON, 3):
            await send(connection, command(limit), f"c{limit}")
        await start_until_it_ends(server, tmp_path, times=3)
        assert await limits_said(connection) == [1, 2]

        # when an operator looks for the next input, and has quota pass over it
        assert await nodepool(server, "skip", "quota") == 0
        shown = capsys.readouterr().out.splitlines()
        assert await nodepool(server, "skip", "quota", "--position", "3") == 0

        # then it was shown, and quota goes on behind it
        assert shown[0] == "next input of quota: position 3"
        assert shown[1] == "subject: 'np.cmd.acme._._.SetQuota'"
        async with serving(BROKEN, server, tmp_path / "after.log") as runtime:
            refused = (await outcome(connection, f"c{POISON}"))["data"]
            assert (await outcome(connection, "c3"))["type"] == "CommandAccepted"
            await until(lambda: runtime.replica.committed == 4)
            live = list(dump(runtime.replica.safe))
        assert isinstance(refused, dict)
        assert refused["message"] == "an operator has had the service pass over it"
        assert await limits_said(connection) == [1, 2, 3]

        # and it lies among the dead letters, and a replay passes over it
        log = await read_all(connection)
        letters = [json.loads(e.content) for e in log if e.subject == "np.dead.quota"]
        assert [letter["position"] for letter in letters] == [3]
        again = Replica(BROKEN, log=await provision(connection))
        for entry in log:
            if BROKEN.wants(entry.subject):
                again.read(entry)
        assert list(dump(again.safe)) == live


async def test_a_running_service_passes_over_an_input_that_it_has_not_committed(
    server: NatsServer, tmp_path: Path
) -> None:
    async with connected(server.url) as connection:
        # given a service that follows the log and commits nothing
        async with serving(QUOTA, server, tmp_path / "one.log") as runtime:
            first = await sent(connection, 1)
            await until(lambda: runtime.replica.committed == first)
        second = await sent(connection, 2)

        # when an operator has it pass over its next input
        assert await nodepool(server, "skip", "quota", "--position", str(second)) == 0

        # then it never does it
        async with serving(QUOTA, server, tmp_path / "two.log") as runtime:
            await send(connection, command(3), "c3")
            assert (await outcome(connection, "c3"))["type"] == "CommandAccepted"
        assert await limits_said(connection) == [1, 3]


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        pytest.param(
            ["quota", "--position", "2"],
            1,
            "position 2 is not the next input of quota",
            id="a later one",
        ),
        pytest.param(
            ["lifecycle", "--position", "1"],
            1,
            "lifecycle has processed all its inputs",
            id="of a service that does not hear it",
        ),
        pytest.param(["baker"], 2, "'baker' is not one of", id="an unknown service"),
        pytest.param(["quota", "--position", "0"], 2, "0 is not in the range", id="no position"),
    ],
)
async def test_only_the_next_input_of_a_service_can_be_passed_over(
    server: NatsServer, capsys: pytest.CaptureFixture[str], words: list[str], code: int, error: str
) -> None:
    async with connected(server.url) as connection:
        # given two commands that quota has not processed
        await send(connection, command(1), "c1")
        await send(connection, command(2), "c2")

        # when an operator wants to pass over something else
        # then that is refused, and nothing is stored
        assert await nodepool(server, "skip", *words) == code
        assert error in capsys.readouterr().err
        assert len(await read_all(connection)) == 2


async def test_what_a_service_has_committed_meanwhile_is_not_passed_over(
    server: NatsServer, tmp_path: Path
) -> None:
    async with connected(server.url) as connection:
        # given an input that was looked at before the service came to it
        log = await provision(connection)
        await send(connection, command(1), "c1")
        standing = await standing_of(connection, QUOTA, log)
        async with serving(QUOTA, server, tmp_path / "one.log"):
            await outcome(connection, "c1")

        # when an operator wants to pass over it
        # then that is a conflict
        with pytest.raises(Conflict):
            await skip(connection, QUOTA, log, standing)
        assert await limits_said(connection) == [1]


async def test_foreign_commit_records_do_not_hide_the_next_input(server: NatsServer) -> None:
    async with connected(server.url) as connection:
        # given a command, and a record that another program has put there
        log = await provision(connection)
        await send(connection, command(1), "c1")
        await api.publish(connection, "np.commit.quota", b'{"position": 1, "log": "x"}')

        # when an operator looks for the next input
        standing = await standing_of(connection, QUOTA, log)

        # then it is the command, and what is to be followed is that record
        assert (standing.committed, standing.expected_sequence) == (0, 2)
        assert standing.next is not None
        assert standing.next.position == 1
        assert await skip(connection, QUOTA, log, standing) == 5


def test_where_there_is_no_log_that_is_said_without_the_password(
    server: NatsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    # given a server on which nothing is set up
    url = server.url.replace("//", "//user:secret@")

    # when an operator looks for the next input of a service
    code = run(["--url", url, "skip", "quota"])

    # then one line says so
    assert (code, capsys.readouterr().err) == (4, f"error: there is no log at {server.url}\n")
