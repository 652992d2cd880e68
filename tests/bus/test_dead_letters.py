"""`nodepool dead`: what could not be processed is shown, and commands are sent again."""

import asyncio
import json
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from bus.broken import BROKEN, FAILING
from bus.harness import connected, fill, limit, outcome, read_all, send, serving
from nodepool.cli.app import run
from nodepool.contract.commands import ApplyNodePool, RegisterCluster, SetQuota
from nodepool.contract.log import Entry
from nodepool.contract.outcomes import CommandOutcome
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.wire.connection import Connection
from nodepool.service import Context
from quota.decide import SERVICE as QUOTA
from support.constants import A100, H100, ZONE
from validator import Hears as ValidatorHears
from validator import Says as ValidatorSays
from validator.decide import SERVICE as VALIDATOR
from validator.state import State as Validated

SUBJECT = "np.cmd.acme._._.SetQuota"


class CommandLine:
    """Runs `nodepool` on a server."""

    def __init__(self, server: NatsServer, captured: pytest.CaptureFixture[str]) -> None:
        self._server, self._captured = server, captured

    async def __call__(self, *words: str) -> tuple[int, str, str]:
        """Exit code, output and errors of a command line."""
        line = ["--url", self._server.url, *words]
        code = await asyncio.to_thread(run, line)
        captured = self._captured.readouterr()
        return code, captured.out, captured.err


@pytest.fixture
def nodepool(server: NatsServer, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line on the server of the test."""
    return CommandLine(server, capsys)


async def failed(
    connection: Connection, server: NatsServer, log: Path, *commands: SetQuota
) -> None:
    """Has quota fail on these commands, whose ids are c0, c1 and so on."""
    async with serving(BROKEN, server, log):
        for number, command in enumerate(commands):
            await send(connection, command, f"c{number}")
            await outcome(connection, f"c{number}")


async def limits(connection: Connection) -> list[int]:
    """The limits that were set, in their order."""
    log = await read_all(connection)
    events = [json.loads(entry.content) for entry in log if entry.subject.endswith(".QuotaSet")]
    return [each["data"]["limit"] for each in events]


async def test_a_command_on_which_a_service_failed_is_done_once_it_is_mended(
    server: NatsServer, nodepool: CommandLine, tmp_path: Path
) -> None:
    async with connected(server.url) as connection:
        # given a command on which quota fails, which is plain JSON without an id
        async with serving(BROKEN, server, tmp_path / "broken.log"):
            content = json.dumps(limit(FAILING).model_dump(by_alias=True)).encode()
            sent = await api.publish(connection, SUBJECT, content)
            refused = (await outcome(connection, str(sent)))["data"]
        assert isinstance(refused, dict)

        # when an operator looks at it
        listed = await nodepool("dead", "list")
        position = listed[1].splitlines()[1].split()[0]
        shown = await nodepool("dead", "show", position)

        # then it is there with its cause, and with what was answered
        titles = ["POSITION", "SERVICE", "AGE", "MESSAGE", "ABOUT", "FIELD", "CAUSE"]
        assert listed[1].splitlines()[0].split() == titles
        assert "AssertionError: the bug" in listed[1]
        assert f"Sender:    was refused: {refused['message']} (InternalError)" in shown[1]
        assert f"once quota is mended: nodepool dead replay {position}" in shown[1]
        assert '  "limit": 666' in shown[1]

        # when quota is mended, and the command is replayed, twice
        async with serving(QUOTA, server, tmp_path / "mended.log"):
            tried = await nodepool("dead", "replay", position, "--dry-run")
            assert await limits(connection) == []
            first = await nodepool("dead", "replay", position)
            second = await nodepool("dead", "replay", "--all", "--service", "quota")

        # then it is done, once, under the id that it had
        assert tried[1] == f"deadletter/{position} replayed as SetQuota '{sent}' (dry run)\n"
        assert first[::2] == (0, "")
        assert first[1].endswith(": accepted (configured)\n")
        assert second[0] == 0
        assert f"deadletter/{position} unchanged: it has been accepted since" in second[1]
        assert await limits(connection) == [FAILING]


async def test_what_would_undo_a_later_change_is_replayed_by_force_only(
    server: NatsServer, nodepool: CommandLine, tmp_path: Path
) -> None:
    async with connected(server.url) as connection:
        # given a command on which quota failed, and one after it that it processed
        async with serving(BROKEN, server, tmp_path / "broken.log"):
            for id, number in (("c1", FAILING), ("c2", 5)):
                await send(connection, limit(number), id)
                await outcome(connection, id)
        _, names, _ = await nodepool("dead", "list", "-o", "name")
        position = names.strip().partition("/")[2]

        # when the first one is replayed on a mended quota
        async with serving(QUOTA, server, tmp_path / "mended.log"):
            kept = await nodepool("dead", "replay", position)
            assert await limits(connection) == [5]
            forced = await nodepool("dead", "replay", position, "--force")

        # then that needs to be insisted on
        assert kept[0] == 1
        assert "is not replayed: it would undo what was accepted later" in kept[2]
        assert (forced[0], await limits(connection)) == (0, [5, FAILING])


async def test_commands_on_one_object_are_replayed_in_their_order(
    server: NatsServer, nodepool: CommandLine, tmp_path: Path
) -> None:
    async with connected(server.url) as connection:
        # given commands on one quota, on each of which quota failed
        commands = [limit(FAILING), limit(FAILING + 1), limit(FAILING + 2)]
        await failed(connection, server, tmp_path / "broken.log", *commands)
        _, names, _ = await nodepool("dead", "list", "-o", "name")
        first = names.split()[-1].partition("/")[2]

        # when the first is replayed on a mended quota, and then all
        async with serving(QUOTA, server, tmp_path / "mended.log"):
            alone = await nodepool("dead", "replay", first)
            rest = await nodepool("dead", "replay", "--all", "--service", "quota")
            again = await nodepool("dead", "replay", "--all", "--service", "quota")

        # then each is done once, and none is taken for a change that came after the next
        assert (alone[0], rest[0], rest[2]) == (0, 0, "")
        assert await limits(connection) == [FAILING, FAILING + 1, FAILING + 2]
        assert [line.split()[1] for line in rest[1].splitlines()] == [
            "unchanged:",
            "replayed",
            "replayed",
        ]
        assert (again[0], again[1].count("unchanged: it has been accepted since")) == (0, 3)


async def test_a_change_of_another_object_or_a_trial_is_not_undone_by_a_replay(
    server: NatsServer, nodepool: CommandLine, tmp_path: Path
) -> None:
    async with connected(server.url) as connection:
        # given a quota on whose command quota failed, and another one that was set later
        await failed(connection, server, tmp_path / "broken.log", limit(FAILING))
        async with serving(QUOTA, server, tmp_path / "mended.log"):
            other = limit(5).model_copy(update={"instance_type": A100})
            await send(connection, other, "later")
            await outcome(connection, "later")

            # then the first is replayed without force
            code, _, error = await nodepool("dead", "replay", "--all", "--service", "quota")
            assert (code, error) == (0, "")
        assert await limits(connection) == [5, FAILING]

        # and so is a NodePool of which a change was only tried since
        validator = replace(VALIDATOR, decide=failing_on_large_pools)
        async with serving(validator, server, tmp_path / "validator.log"):
            await send(connection, RegisterCluster(org="acme", cluster="a", zone=ZONE), "r")
            for number, target, dry_run in ((1, FAILING, False), (2, 5, True)):
                await send(connection, applied(target, dry_run=dry_run), f"p{number}")
                await outcome(connection, f"p{number}")
        async with serving(VALIDATOR, server, tmp_path / "validator.log"):
            code, _, error = await nodepool("dead", "replay", "--all", "--service", "validator")
            assert (code, error) == (0, "")


def failing_on_large_pools(
    state: Validated, message: ValidatorHears, context: Context
) -> Generator[ValidatorSays | CommandOutcome, Validated, None]:
    """As the validator decides, but for large NodePools."""
    if isinstance(message, ApplyNodePool) and message.spec.target_nodes == FAILING:
        raise AssertionError("the bug")
    yield from VALIDATOR.decide(state, message, context)


def applied(target: int, *, dry_run: bool) -> ApplyNodePool:
    """The command that applies a NodePool with this target, or tries to."""
    content = {
        "metadata": {"name": "train"},
        "spec": {"instanceType": H100, "targetNodes": target},
        "dryRun": dry_run,
    }
    identity = {"org": "acme", "cluster": "a", "pool": "train"}
    return ApplyNodePool.model_validate(content).model_copy(update=identity)


async def test_a_command_is_replayed_as_it_was_sent(
    server: NatsServer, nodepool: CommandLine, tmp_path: Path
) -> None:
    async with connected(server.url) as connection:
        # given commands in three ways: with attributes as headers, and bare with and without id
        bare = json.dumps(limit(FAILING).model_dump(by_alias=True)).encode()
        trace = f"00-{'1' * 32}-{'2' * 16}-01"
        binary = {
            "ce-id": "c1",
            "ce-source": "billing",
            "ce-specversion": "1.0",
            "ce-type": "SetQuota",
            "content-type": "application/json",
            "traceparent": trace,
            "tracestate": "a=b",
        }
        sent = [binary, {"Nats-Msg-Id": "c2"}, {}]
        async with serving(BROKEN, server, tmp_path / "broken.log"):
            positions = [await api.publish(connection, SUBJECT, bare, each) for each in sent]
            await outcome(connection, str(positions[-1]))

        # when they are replayed
        async with serving(QUOTA, server, tmp_path / "mended.log"):
            code, _, _ = await nodepool("dead", "replay", "--all", "--service", "quota")
        assert code == 0

        # then each has what it had, what it is known by, and what it repeats
        log = await read_all(connection)
        repeated = [entry for entry in log if entry.subject == SUBJECT][len(sent) :]
        assert [entry.content for entry in repeated] == [bare] * len(sent)
        of = [{"Nodepool-Replay-Of": str(position)} for position in positions]
        assert [foreign(entry) for entry in repeated] == [
            binary | of[0],
            {"ce-id": "c2"} | of[1],
            {"ce-id": str(positions[2])} | of[2],
        ]


def foreign(entry: Entry) -> dict[str, str]:
    """The headers that are not the server's."""
    return {name: text for name, text in entry.headers.items() if not name.startswith("Nats-")}


async def test_what_cannot_be_replayed_says_why(
    server: NatsServer, nodepool: CommandLine, tmp_path: Path
) -> None:
    async with connected(server.url) as connection:
        # given an invalid command, an unreadable event, and letters that no service wrote
        letter = {"position": 1, "subject": "np.cmd.x._._.SetQuota", "cause": "\u001b[2J"}
        wake = {"position": 1, "subject": "np.evt.clock.quota._._.Wake", "cause": "x"}
        stored = {"position": 1, "subject": "$KV.nodes.a", "cause": "x"}
        async with serving(QUOTA, server, tmp_path / "quota.log"):
            await fill(
                connection,
                [
                    (SUBJECT, b'{"limit": -1}'),
                    ("np.evt.validator.demo.demo.a.NodePoolValidated", b"\xff"),
                    *(
                        ("np.dead.quota", json.dumps(each).encode())
                        for each in (letter, wake, stored)
                    ),
                    ("np.dead.quota", b"\xff"),
                ],
            )
            await send(connection, limit(1), "last")
            await outcome(connection, "last")

        # when they are listed and replayed
        _, text, _ = await nodepool("dead", "list", "-o", "json")
        items = json.loads(text)["items"]
        positions = [item["metadata"]["name"] for item in items]
        results = [await nodepool("dead", "replay", position) for position in positions]
        for position in positions:
            assert (await nodepool("dead", "show", position))[0] == 0
        missing = await nodepool("dead", "show", "1")

    # then each says what helps instead, and nothing was sent
    assert [(code, error.partition(" is not replayed: ")[2]) for code, _, error in results] == [
        (
            1,
            "NodePoolValidated is believed from validator alone; mend quota, which computes"
            " what is missing with the next message about the same object\n",
        ),
        (1, results[1][2].partition(" is not replayed: ")[2]),
        (1, "it is no message of the control plane\n"),
        (1, "it is an object of the read model, which is written again when it changes\n"),
        (1, "quota does by itself, each minute, what it failed to do when it woke\n"),
        (1, "its command is not in the log: it is no letter of this log\n"),
    ]
    assert "it is refused again: " in results[1][2]
    assert missing[0] == 1
    assert missing[2] == "error: there is no dead letter at position 1 of the log\n"
