"""The command line shows who has sent what through the front door, when and from where."""

import asyncio
import getpass
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from nats.aio.client import Client as NatsClient

from bus.front_door import ORG, OTHER, FrontDoor, ask, front_door, gateway_at, said
from bus.harness import PATIENCE_S, outcome, serving
from nodepool.cli.app import run
from nodepool.client import Client
from nodepool.client.audit import Wanted
from nodepool.client.errors import Refused
from nodepool.nats.wire.connection import Connection, connect
from support.constants import H100, ZONE
from support.services import services

MANIFEST = {
    "apiVersion": "compute.coreweave.com/v1alpha1",
    "kind": "NodePool",
    "metadata": {"name": "train"},
    "spec": {"instanceType": H100, "targetNodes": 1},
}
CLUSTER, TRAIN, SERVE = (f"np.cmd.{ORG}.prod.{name}" for name in ("_", "train", "serve"))
FORGED = "acme;olga;owner;10.9.9.9"


class Story:
    """An installation with a NodePool: who sends through the front door, and what is shown of it.

    bus: the connection of the operator.
    editor: the connection of a user of an organisation.
    """

    def __init__(
        self,
        door: FrontDoor,
        bus: Connection,
        editor: NatsClient,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        self.bus = bus
        self.editor = editor
        self.url = door.url
        self.door = door
        self._capsys = capsys

    async def send(self, subject: str, content: object, **headers: str) -> dict[str, object]:
        """Sends a command through the front door; the outcome, as it is stored."""
        text = json.dumps(content).encode()
        reply = await self.editor.request(
            subject, text, timeout=PATIENCE_S, headers=headers or None
        )
        return await outcome(self.bus, str(said(reply)["id"]))

    async def store(self, subject: str, content: object) -> int:
        """Sends a command through the front door; its position."""
        reply = await self.editor.request(subject, json.dumps(content).encode(), timeout=PATIENCE_S)
        return int(str(said(reply)["position"]))

    async def send_directly(self, subject: str, content: object) -> None:
        """Sends a command as the operator; returns once it has an outcome."""
        command = {"specversion": "1.0", "id": subject, "source": "me", "data": content}
        await self.bus.publish(subject, json.dumps(command).encode())
        await outcome(self.bus, subject)

    async def nodepool(self, *arguments: str, note: str = "") -> str:
        """Runs a command of the operator, which prints this note; what it prints otherwise."""
        line = ["--url", self.url, "--org", ORG, "--cluster", "prod", *arguments]
        code = await asyncio.to_thread(run, line)
        printed = self._capsys.readouterr()
        assert (code, printed.err) == (0, note)
        return printed.out

    async def try_nodepool(self, *arguments: str) -> tuple[int, str, str]:
        """Runs a command; its exit code, and what it prints on each output."""
        code = await asyncio.to_thread(run, list(arguments))
        printed = self._capsys.readouterr()
        return code, printed.out, printed.err

    async def audit(self, *arguments: str) -> list[list[str]]:
        """The rows of `audit`, without the time."""
        lines = (await self.nodepool("audit", "--no-headers", *arguments)).splitlines()
        return [line.split()[1:] for line in lines]


@pytest.fixture
async def story(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Story]:
    """The operator has registered a cluster, and made a NodePool, without the front door."""
    with front_door(tmp_path) as door:
        async with _story_at(door, tmp_path, capsys) as story:
            await story.send_directly(f"{CLUSTER}.RegisterCluster", {"zone": ZONE})
            await story.send_directly(f"{TRAIN}.ApplyNodePool", MANIFEST)
            yield story


@asynccontextmanager
async def _story_at(
    door: FrontDoor, folder: Path, capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[Story]:
    validator, aggregator = services("validator", "aggregator")
    bus = await connect(door.url, "operator")
    try:
        async with (
            serving(validator, door, folder / "1.log"),
            serving(aggregator, door, folder / "2.log"),
            gateway_at(door),
            door.user("edith") as editor,
        ):
            yield Story(door, bus, editor, capsys)
    finally:
        await bus.close()


async def test_what_the_operator_sends_directly_is_shown_as_the_operators(story: Story) -> None:
    assert await story.audit() == [
        ["operator", "-", "(me)", "RegisterCluster", "cluster/prod", "accepted:", "created"],
        ["operator", "-", "(me)", "ApplyNodePool", "nodepool/train", "accepted:", "created"],
    ]
    change = "ApplyNodePool by operator (who says: me) at 20"
    assert change in await story.nodepool("describe", "np/train")
    (event,) = (await story.nodepool("events", "-o", "wide", "--no-headers")).splitlines()
    assert "operator" in event.split()


async def test_a_scale_shows_its_user_role_and_address_everywhere(story: Story) -> None:
    # given a NodePool of the operator, when an editor scales it and makes another one
    scaled = await story.send(f"{TRAIN}.ScaleNodePool", {"targetNodes": 3})
    manifest = {**MANIFEST, "metadata": {"name": "serve"}}
    await story.send(f"{SERVE}.ApplyNodePool", manifest)

    # then the outcome names the editor
    assert scaled["actor"] == "acme;edith;editor;127.0.0.1"
    # and so does the command line
    change = "ScaleNodePool by acme/edith (editor) from 127.0.0.1 at 20"
    assert change in await story.nodepool("describe", "np/train")
    events = (await story.nodepool("events", "-o", "wide", "--no-headers")).splitlines()
    assert [line.split()[2:5] for line in events] == [
        ["CWNodePoolCreated", "NodePool/train", "operator"],
        ["CWNodePoolCreated", "NodePool/serve", "acme/edith"],
    ]
    sent = ["acme/edith", "editor", "127.0.0.1"]
    assert await story.audit("--by", "edith") == [
        [*sent, "ScaleNodePool", "nodepool/train", "accepted:", "configured"],
        [*sent, "ApplyNodePool", "nodepool/serve", "accepted:", "created"],
    ]
    assert len(await story.audit("nodepool/train")) == 2


async def test_the_operator_says_from_which_machine_a_command_comes(story: Story) -> None:
    # when the operator scales a NodePool with the command line
    await story.nodepool("scale", "nodepool", "train", "--target", "4", "-o", "name")

    # then the machine is shown as what the operator says, because the server does not stamp it
    *_, (user, role, origin, command, *_) = await story.audit()
    assert (user, role, command) == ("operator", "-", "ScaleNodePool")
    assert origin == f"(nodepool-cli/{getpass.getuser()}@{socket.gethostname()})"


async def test_who_has_deleted_a_nodepool_is_named_once_it_is_gone(
    story: Story, tmp_path: Path
) -> None:
    # given a NodePool that an owner deletes
    (allocator,) = services("allocator")
    async with (
        serving(allocator, story.door, tmp_path / "3.log"),
        story.door.user("olga") as owner,
    ):
        await owner.request(f"{TRAIN}.DeleteNodePool", b"{}", timeout=PATIENCE_S)

        # when it is gone, and somebody looks for it
        where = ("--url", story.url, "--org", ORG, "--cluster", "prod")
        await story.try_nodepool("wait", "np/train", "--for", "delete", *where)
        found = [
            await story.try_nodepool(verb, "nodepool", "train", *where)
            for verb in ("describe", "explain")
        ]

    # then the error says who has deleted it, when and from where
    change = "DeleteNodePool by acme/olga (owner) from 127.0.0.1 at 20"
    for code, _, error in found:
        assert code == 1
        assert f'nodepool "train" not found in acme/prod; the last change was {change}' in error

    # and so do the events
    events = (await story.nodepool("events", "-o", "wide", "--no-headers")).splitlines()
    assert ["CWNodePoolDeleted", "NodePool/train", "acme/olga"] in [
        line.split()[2:5] for line in events
    ]

    # and of a name that nobody had, nothing is said
    _, _, error = await story.try_nodepool("describe", "np", "nowhere", *where)
    assert error == 'error: nodepool "nowhere" not found in acme/prod\n'


async def test_a_refusal_is_shown_with_its_reason(story: Story) -> None:
    subject = TRAIN.replace("train", "none")

    await story.send(f"{subject}.ScaleNodePool", {"targetNodes": 3})

    (shown,) = json.loads(await story.nodepool("audit", "none", "-o", "json"))["items"]
    assert shown["spec"]["actor"] == {
        "name": "acme/edith",
        "org": "acme",
        "user": "edith",
        "role": "editor",
        "address": "127.0.0.1",
    }
    assert shown["spec"]["object"] == {"kind": "nodepool", "name": "none"}
    assert (shown["status"]["outcome"], shown["status"]["detail"]) == ("refused", "NotFound")


async def test_a_forged_actor_is_shown_nowhere(story: Story) -> None:
    # given a command that names another user as a CloudEvent attribute and in its headers
    event = {"specversion": "1.0", "id": "c9", "source": "x", "actor": FORGED}
    data = {"targetNodes": 5}

    # when an editor sends it
    scaled = await story.send(
        f"{TRAIN}.ScaleNodePool",
        {**event, "data": data},
        actor=FORGED,
        **{"ce-actor": FORGED, "Nats-Actor": FORGED},
    )

    # then the editor is shown
    assert scaled["actor"] == "acme;edith;editor;127.0.0.1"
    assert "acme/edith (editor)" in await story.nodepool("describe", "np/train")
    assert "olga" not in await story.nodepool("audit", "-o", "json")
    # and a field of the content is refused at the door
    refused = await story.editor.request(
        f"{TRAIN}.ScaleNodePool", json.dumps({**data, "actor": FORGED}).encode(), timeout=PATIENCE_S
    )
    assert said(refused)["field"] == "actor"


async def test_the_newest_commands_are_shown_and_the_others_counted(story: Story) -> None:
    note = "1 older ones are not shown; choose with --since or --limit\n"

    shown = await story.nodepool("audit", "--limit", "1", "-o", "name", note=note)

    assert shown.count("command/") == 1


async def test_the_last_change_of_a_node_is_an_accepted_command_that_names_it(
    story: Story,
) -> None:
    # given commands about two Nodes, of which one is refused and one has no outcome
    positions = [
        await story.store(f"{TRAIN}.{command}", {"node": node})
        for command, node in (
            ("CordonNode", "g1"),
            ("DrainNode", "g2"),
            ("RebootNode", "g1"),
            ("DrainNode", "g1"),
        )
    ]
    for position, name in zip(positions, ("Accepted", "Accepted", "Refused"), strict=False):
        event = {"causeposition": position, "data": {}}
        subject = f"np.evt.lifecycle.{ORG}.prod.train.Command{name}"
        await story.bus.publish(subject, json.dumps(event).encode())

    # then the accepted command about a Node is its last change
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    async with Client(story.url, org=ORG, cluster="prod") as client:
        change = await client.audit.last_of_node("g1", "train", hour_ago)
        assert await client.audit.last_of_node("g3", "train", hour_ago) is None
        assert await client.audit.last_of_pool("none") is None
    assert change is not None
    assert (change.command, change.user, change.position) == (
        "CordonNode",
        "acme/edith",
        positions[0],
    )


async def test_a_user_sees_through_the_gateway_what_the_operator_sees(story: Story) -> None:
    # given commands with and without an outcome, of two users
    await story.send(f"{TRAIN}.ScaleNodePool", {"targetNodes": 3})
    await story.send(f"{SERVE}.ScaleNodePool", {"targetNodes": 3})
    await story.store(f"{TRAIN}.CordonNode", {"node": "g1"})
    since = datetime.now(UTC) - timedelta(hours=1)

    # when the operator and a viewer of the organisation ask
    seen = []
    for user, through in (("platform", "bus"), ("vera", "gateway")):
        url = story.door.of(user)
        async with Client(url, org=ORG, cluster="prod", through=through) as client:  # type: ignore[arg-type]
            trail = await client.audit.read(Wanted(since=since))
            actors = [event.actor async for event in client.events.read()]
            seen.append((trail.all(), await client.audit.last_of_pool("train"), actors))

    # then they see the same
    assert seen[0] == seen[1]
    (commands, last, actors), _ = seen
    assert [(each.user, each.outcome and each.outcome.result) for each in commands] == [
        ("operator", "accepted"),
        ("operator", "accepted"),
        ("acme/edith", "accepted"),
        ("acme/edith", "refused"),
        ("acme/edith", None),
    ]
    assert last == replace(commands[2], outcome=None)
    assert actors == ["operator"]


@pytest.mark.parametrize(
    ("user", "asked", "field"),
    [
        ("vera", {"pool": "train", "last": True}, "cluster"),
        ("vera", {"cluster": "prod", "last": True}, "pool"),
        ("vera", {"cluster": "*"}, "cluster"),
        ("vera", {"pool": ">"}, "pool"),
        ("vera", {"org": OTHER}, "org"),
        ("agent-prod", {}, "cluster"),
        ("agent-prod", {"cluster": "test"}, "cluster"),
    ],
)
async def test_a_user_cannot_ask_for_the_commands_of_others(
    story: Story, user: str, asked: dict[str, object], field: str
) -> None:
    async with story.door.user(user) as client:
        reply = await client.request(
            f"np.api.{ORG}.Audit", json.dumps(asked).encode(), timeout=PATIENCE_S
        )
    answer = said(reply)

    assert answer["field"] == field
    assert "items" not in answer


async def test_another_organisation_sees_none_of_these_commands(story: Story) -> None:
    async with story.door.user("ulrich") as client:
        answer = await ask(client, "Audit", OTHER)
        last = await ask(client, "Audit", OTHER, cluster="prod", pool="train", last=True)

    assert (answer["items"], answer["atEnd"]) == ([], True)
    assert last["items"] == []


async def test_pages_of_commands_follow_one_another(story: Story) -> None:
    async with story.door.user("vera") as client:
        first = await ask(client, "Audit", limit=1)
        second = await ask(client, "Audit", limit=1, after=first["after"])
        third = await ask(client, "Audit", limit=1, after=second["after"])

    pages = [[each["command"] for each in page["items"]] for page in (first, second, third)]  # type: ignore[attr-defined]
    assert pages == [["RegisterCluster"], ["ApplyNodePool"], []]
    assert [page["atEnd"] for page in (first, second, third)] == [False, False, True]


async def test_the_operator_sees_what_organisations_store_and_a_user_does_not(
    story: Story,
) -> None:
    # given an organisation that has sent a command through the front door
    await story.send(f"{TRAIN}.ScaleNodePool", {"targetNodes": 3})

    # then the operator sees its bytes
    (shown,) = json.loads(await story.nodepool("audit", "--usage", "-o", "json"))["items"]
    (row,) = (await story.nodepool("audit", "--usage", "--no-headers")).splitlines()
    assert shown["metadata"]["name"] == ORG
    assert 0 < shown["status"]["storedBytes"] < 50_000 < shown["status"]["bytesPerHour"]
    assert row.split()[:2] == [ORG, str(shown["status"]["storedBytes"])]
    # and a user of the organisation is refused
    async with Client(story.door.of("vera"), org=ORG, through="gateway") as client:
        with pytest.raises(Refused, match="what all organisations store"):
            await client.audit.usage()
