"""The front door on a real server, as plain clients of organisations without JetStream see it."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeout

from bus.front_door import ORG, OTHER, USERS, FrontDoor, ask, front_door, gateway_at, said
from bus.harness import PATIENCE_S, connected, launched, outcomes, read_all, serving, until
from contracts.samples import sample
from gateway.host.counting import COST
from gateway.host.door import MESSAGE_BYTES, NEW_OBJECT_BYTES
from nodepool.client.sender import encode_command
from nodepool.contract.commands import CordonNode, RegisterCluster, ScaleNodePool
from nodepool.contract.events import NodeReported
from nodepool.contract.log import CONTENT_TYPE, Entry
from nodepool.contract.messages import wrap
from nodepool.contract.queries import QUERIES
from nodepool.contract.subjects import subject_of
from nodepool.nats.log import api
from nodepool.nats.wire.connection import Connection
from support.constants import H100, ZONE
from support.services import services
from testbed.ports import free_port

MANIFEST = {
    "apiVersion": "compute.coreweave.com/v1alpha1",
    "kind": "NodePool",
    "metadata": {"name": "train", "labels": {"team": "a"}},
    "spec": {"instanceType": H100, "targetNodes": 1},
}
MANY = ["CWNodeAssigned", "CWNodeDeleted", "NodePoolValidated", "NodeUpdated", "QuotaChecked"]
"""More names of events than are looked for one by one."""
SELECTION = {"instanceType": H100, "count": 1}
TOO_LARGE = b'{"targetNodes": 1, "resourceVersion": "%b"}' % (b"x" * 300_000)
REPORTED = "train.NodeReported"
SCALE = f"np.cmd.{ORG}.prod.train.ScaleNodePool"
HOSTILE = {
    COST: "0",
    "Nats-Msg-Id": "m1",
    "Nats-Expected-Stream": "OTHER",
    "Nats-Expected-Last-Sequence": "99",
    "Nats-Expected-Last-Subject-Sequence": "99",
    "Nats-Expected-Last-Msg-Id": "m0",
    "Nats-Batch-Id": "b1",
    "Nats-Batch-Sequence": "1",
    "Nats-TTL": "1s",
    "Nats-Rollup": "sub",
    "Nats-Incr": "1",
    "Nats-Schedule": "@every 1s",
    "Nats-Marker-Reason": "x",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
}
"""Headers that would do something if the log received them."""


@pytest.fixture
def door(tmp_path: Path) -> Iterator[FrontDoor]:
    """A server with the accounts of two organisations."""
    with front_door(tmp_path) as server:
        yield server


def scale(id: str = "c1", target: int = 3, org: str = ORG) -> bytes:
    """The content of a command of this organisation."""
    command = ScaleNodePool(org=org, cluster="prod", pool="train", target_nodes=target)
    return encode_command(command, id, "me")


async def send(client: Client, subject: str, content: bytes, **headers: str) -> dict[str, object]:
    """What the gateway replies to a message."""
    return said(await client.request(subject, content, timeout=PATIENCE_S, headers=headers or None))


# Commands in.


def stored_headers(entry: Entry) -> dict[str, str]:
    """The headers that the gateway gives a command about an unknown NodePool."""
    size = len(entry.content) + len(entry.subject) + MESSAGE_BYTES + NEW_OBJECT_BYTES
    return {"Content-Type": CONTENT_TYPE, COST: str(size)}


async def test_a_plain_client_sends_a_command_and_gets_its_acknowledgement(door: FrontDoor) -> None:
    # given a gateway, and a client of an organisation
    async with connected(door.url) as bus, gateway_at(door), door.user("edith") as client:
        # when the client sends bare JSON
        reply = await send(client, SCALE, b'{"targetNodes": 3}')

        # then the command is in the log under the id of the reply, with who has sent it
        (entry,) = await read_all(bus)
        stored = json.loads(entry.content)
        assert reply == {"id": stored["id"], "position": entry.position}
        assert entry.subject == SCALE
        assert stored["actor"] == "acme;edith;editor;127.0.0.1"
        assert stored["data"]["targetNodes"] == 3
        assert entry.headers == stored_headers(entry)


async def test_a_command_without_a_reply_subject_is_stored(door: FrontDoor) -> None:
    async with connected(door.url) as bus, gateway_at(door), door.user("edith") as client:
        # given a command, when it is published
        await client.publish(SCALE, scale("c7"))

        # then it is stored with its own id
        await until(lambda: _is_stored(bus, 1))
        (entry,) = await read_all(bus)
        assert json.loads(entry.content)["id"] == "c7"


async def _is_stored(bus: Connection, count: int) -> bool:
    return await api.last_position(bus, "NODEPOOL") == count


async def test_the_whole_control_plane_answers_through_the_front_door(
    door: FrontDoor, tmp_path: Path
) -> None:
    # given the services that NodePools need, and the users of an organisation
    validator, aggregator = services("validator", "aggregator")
    async with (
        serving(validator, door, tmp_path / "1.log"),
        serving(aggregator, door, tmp_path / "2.log"),
        gateway_at(door),
        door.user("agent-prod") as agent,
        door.user("edith") as editor,
        door.user("vera") as viewer,
    ):
        heard = await viewer.subscribe("np.evt.*.acme.>")
        await viewer.flush()

        # when an agent registers its cluster and an editor applies a NodePool
        await send(
            agent, f"np.cmd.{ORG}.prod._.RegisterCluster", json.dumps({"zone": ZONE}).encode()
        )
        applied = await send(
            editor, f"np.cmd.{ORG}.prod.train.ApplyNodePool", json.dumps(MANIFEST).encode()
        )

        # then a viewer hears the outcome, and reads the NodePool as of that position
        accepted = await _outcome(heard, str(applied["id"]))
        got: dict[str, object] = {"reason": "Behind"}
        while got.get("reason") == "Behind":
            got = await ask(
                viewer, "Get", kind="nodepools", cluster="prod", name="train", notOlderThan=accepted
            )
        assert isinstance(got["position"], int)
        assert got["position"] >= accepted
        assert _name(got["object"]) == "train"
        for selector, names in (("team=a", ["train"]), ("team!=a", [])):
            listed = await ask(viewer, "List", kind="nodepools", labelSelector=selector)
            assert isinstance(listed["items"], list)
            assert list(map(_name, listed["items"])) == names
        explained = await ask(viewer, "Explain", cluster="prod", pool="train")
        assert "NodePool train wants 1 Node" in str(explained["sentence"])
        page = await ask(viewer, "Events", cluster="prod", limit=1)
        assert isinstance(page["items"], list)
        assert page["items"][0]["reason"] == "CWNodePoolCreated"

        # and events can be read from a time on, and objects as the log has them now
        since = page["items"][0]["time"]
        again = await ask(viewer, "Events", cluster="prod", limit=1, since=since)
        earlier = await ask(
            viewer, "Events", cluster="prod", limit=1, since="0001-01-01T00:00:00+14:00"
        )
        later = await ask(viewer, "Events", cluster="prod", since="2999-01-01T00:00:00Z")
        current = await ask(viewer, "List", kind="nodepools", current=True)
        assert again["items"] == earlier["items"] == page["items"]
        assert (later["items"], later["atEnd"]) == ([], True)
        assert int(str(current["position"])) >= int(str(later["position"]))


async def test_a_query_about_what_the_read_model_does_not_show_yet_is_to_be_asked_again(
    door: FrontDoor, tmp_path: Path
) -> None:
    # given a control plane without its aggregator, in which a cluster is registered
    (validator,) = services("validator")
    async with (
        serving(validator, door, tmp_path / "1.log"),
        gateway_at(door),
        door.user("agent-prod") as agent,
        door.user("vera") as viewer,
    ):
        heard = await viewer.subscribe("np.evt.*.acme.>")
        await viewer.flush()
        registration = json.dumps({"zone": ZONE}).encode()
        registered = await send(agent, f"np.cmd.{ORG}.prod._.RegisterCluster", registration)
        accepted = await _outcome(heard, str(registered["id"]))

        # when a user asks for the clusters as of that position, then that may come true
        refusal = await ask(viewer, "List", kind="clusters", notOlderThan=accepted)
        assert (refusal["reason"], refusal["field"], refusal["fix"]) == (
            "Behind",
            "notOlderThan",
            "ask again in a moment, or without notOlderThan",
        )


async def _outcome(heard: object, id: str) -> int:
    """The position at which the log has at least the outcome of a command."""
    async for message in heard.messages:  # type: ignore[attr-defined]  # A subscription.
        event = json.loads(message.data)
        if event.get("correlationid") == id and event["type"] == "CommandAccepted":
            return int(event["causeposition"]) + 1
    raise AssertionError("the subscription has ended")


def _name(document: object) -> object:
    assert isinstance(document, dict)
    return document["metadata"]["name"]


@pytest.mark.parametrize(
    ("user", "subject", "content", "reason", "field"),
    [
        ("edith", SCALE, b"{", "Invalid", ""),
        ("edith", SCALE, b'{"targetNode": 1}', "Invalid", "targetNode"),
        ("edith", SCALE, b'{"targetNodes": "1"}', "Invalid", "targetNodes"),
        ("edith", SCALE, b'{"targetNodes": 1, "org": "umbra"}', "Invalid", "org"),
        ("edith", SCALE, TOO_LARGE, "Invalid", ""),
        ("edith", SCALE.replace("Scale", "Scael"), b"{}", "Invalid", "subject"),
        ("edith", f"np.cmd.{ORG}.prod.ScaleNodePool", b"{}", "Invalid", "subject"),
        ("edith", f"np.cmd.{ORG}.prod.a+b.ScaleNodePool", b"{}", "Invalid", "subject"),
        ("edith", f"np.cmd.{ORG}.prod.{'a' * 254}.ScaleNodePool", b"{}", "Invalid", "subject"),
        ("vera", SCALE, b'{"targetNodes": 1}', "Forbidden", "subject"),
        ("edith", f"np.cmd.{ORG}.prod.train.DeleteNodePool", b"{}", "Forbidden", "subject"),
        ("olga", f"np.cmd.{ORG}._._.SetQuota", b"{}", "Forbidden", "subject"),
        ("agent-prod", f"np.cmd.{ORG}.test._.RegisterCluster", b"{}", "Forbidden", "subject"),
        ("edith", f"np.evt.agent.{ORG}.prod.train.NodeReported", b"{}", "Forbidden", "subject"),
        ("agent-prod", f"np.evt.agent.{ORG}.test.{REPORTED}", b"{}", "Forbidden", "subject"),
        ("agent-prod", f"np.evt.agent.{ORG}.prod.train.NodeUpdated", b"{}", "Invalid", "subject"),
        ("agent-prod", f"np.evt.agent.{ORG}.prod.train.NodeReported", b"{}", "Invalid", "id"),
    ],
)  # fmt: skip
async def test_a_refusal_names_the_field_and_the_fix(
    door: FrontDoor, user: str, subject: str, content: bytes, reason: str, field: str
) -> None:
    async with connected(door.url) as bus, gateway_at(door), door.user(user) as client:
        # given a message that must not come in, when a user sends it
        message = await client.request(subject, content, timeout=PATIENCE_S)

        # then the reply says what is wrong, and nothing is stored
        refusal = said(message)
        assert (refusal["reason"], refusal["field"]) == (reason, field)
        assert refusal["error"]
        assert refusal["fix"]
        assert message.headers is not None
        assert message.headers["Nats-Service-Error"] == reason
        assert await read_all(bus) == []


async def test_an_agent_reports_about_its_own_cluster(door: FrontDoor) -> None:
    # given a report about a Node of the cluster of an agent
    report = sample(NodeReported, org=ORG, cluster="prod", pool="train")
    subject = subject_of(report, "agent")
    content = wrap(report, id="r1", source="agent", correlationid="forged").encode()
    async with connected(door.url) as bus, gateway_at(door), door.user("agent-prod") as agent:
        # when the agent publishes it
        reply = await send(agent, subject, content)

        # then it is in the log, with who has sent it and nothing else that the agent chose
        (entry,) = await read_all(bus)
        stored = json.loads(entry.content)
        assert reply == {"id": "r1", "position": 1}
        assert entry.subject == subject
        assert stored["actor"] == "acme;agent-prod;agent;127.0.0.1"
        assert "correlationid" not in stored


# Attacks.


async def test_headers_of_a_sender_do_nothing(door: FrontDoor) -> None:
    async with connected(door.url) as bus, gateway_at(door), door.user("edith") as client:
        # given two commands with the same hostile headers
        # when a client sends them
        for id in ("c1", "c2"):
            reply = await send(client, SCALE, scale(id), **HOSTILE)
            assert reply["id"] == id

        # then both are stored, without any of them
        entries = await read_all(bus)
        assert [json.loads(entry.content)["id"] for entry in entries] == ["c1", "c2"]
        assert [entry.headers for entry in entries] == [stored_headers(each) for each in entries]
        assert "traceparent" not in json.loads(entries[0].content)


async def test_the_id_of_bare_json_may_be_a_header(door: FrontDoor) -> None:
    async with connected(door.url), gateway_at(door), door.user("edith") as client:
        # given bare JSON with the header that plain clients know, when it is sent
        reply = await send(client, SCALE, b'{"targetNodes": 1}', **{"Nats-Msg-Id": "mine"})

        # then that is its id
        assert reply["id"] == "mine"


FORGED = b'{"acc":"umbra","user":"ulrich","host":"10.9.9.9"}'


@pytest.mark.parametrize(
    ("headers", "is_stored"),
    [
        (b"NATS/1.0\r\nNats-Request-Info: %b\r\n\r\n" % FORGED, True),
        (b"NATS/1.0\r\nnats-request-info: %b\r\n\r\n" % FORGED, True),
        (b"NATS/1.0\r\nNats-Request-Info : %b\r\n\r\n" % FORGED, True),
        # The server adds its header in the place of the last two bytes, whatever they are.
        (b"NATS/1.0\r\nNats-Request-Info : %b\r\nX: ab" % FORGED, False),
        (b"NATS/1.0\r\nNats-Request-Info: %b\r\nX: ab" % FORGED, False),
        (b"NATS/1.0\r\nNats-Request-Info: %b\r\n" % FORGED, False),
        (b"NATS/1.0\r\nNats-Batch-Id: 1\r\nNats-Request-Info : %b\r\nX: ab" % FORGED, False),
        (b"NATS/1.0", False),
        (b"ab", False),
    ],
)
async def test_nobody_can_forge_who_sends(door: FrontDoor, headers: bytes, is_stored: bool) -> None:
    async with connected(door.url) as bus, gateway_at(door), door.user("edith") as client:
        # given a command whose content and headers name another user
        content = scale("c1").replace(b'"specversion"', b'"actor":"umbra;u;owner;h","specversion"')
        inbox = client.new_inbox()
        replies = await client.subscribe(inbox)
        await client.flush()

        # when a client writes it by hand
        line = b"HPUB %b %b %d %d\r\n" % (
            *(SCALE.encode(), inbox.encode()),
            *(len(headers), len(headers) + len(content)),
        )
        assert client._transport is not None
        client._transport.write(line + headers + content + b"\r\n")
        reply = said(await replies.next_msg(timeout=PATIENCE_S))

        # then it is refused, or stored as what this user has sent
        actors = [json.loads(entry.content)["actor"] for entry in await read_all(bus)]
        assert actors == (["acme;edith;editor;127.0.0.1"] if is_stored else [])
        assert ("position" in reply) is is_stored


async def test_a_user_who_is_no_member_any_more_is_refused(door: FrontDoor) -> None:
    async with connected(door.url) as bus, gateway_at(door), door.user("edith") as client:
        # given a user whose command was taken
        await send(client, SCALE, scale("c1"))

        # when the user is no member any more
        door.let_in([user for user in USERS if user[1] != "edith"])

        # then further commands are refused
        await until(lambda: _is_refused(client))
        last = await api.last_position(bus, "NODEPOOL")
        assert (await send(client, SCALE, scale("c9")))["reason"] == "Forbidden"
        assert await api.last_position(bus, "NODEPOOL") == last


async def _is_unknown(client: Client) -> bool:
    return (await send(client, SCALE, scale("c2"))).get("reason") == "Forbidden"


async def _is_refused(client: Client) -> bool:
    return "reason" in await send(client, SCALE, scale("c2"))


@pytest.mark.parametrize(
    "subject",
    [
        SCALE,
        f"np.door.cmd.{ORG}.prod.train.ScaleNodePool",
        f"np.door.api.{ORG}.List",
        f"np.api.{ORG}.List",
        f"np.evt.agent.{ORG}.prod.train.NodeReported",
        "np.evt.validator.umbra.prod._.ClusterRegistered",
        "$SRV.PING",
    ],
)
async def test_another_organisation_reaches_nothing(door: FrontDoor, subject: str) -> None:
    async with connected(door.url) as bus, gateway_at(door), door.user("ulrich") as client:
        # given a subject that is not of its account, when another organisation sends there
        with pytest.raises((NoRespondersError, NatsTimeout)):
            await client.request(subject, b'{"kind": "nodepools"}', timeout=0.5)

        # then nothing is stored
        assert await read_all(bus) == []


async def test_an_acknowledgement_reaches_no_subject_of_another(door: FrontDoor) -> None:
    async with connected(door.url) as bus, gateway_at(door), door.user("edith") as client:
        # given a command whose reply subject is where others speak
        for reply in ("np.cmd.umbra.prod.train.ScaleNodePool", "np.commit.validator", SCALE):
            await client.publish(SCALE, scale("c1"), reply=reply)
        await client.flush()

        # when it was taken
        await send(client, SCALE, scale("c2"))

        # then the log has the commands, and nothing of the replies but one that is refused
        assert {entry.subject for entry in await read_all(bus)} == {SCALE}


async def test_a_command_that_another_user_repeats_counts_as_that_users_and_is_not_done_twice(
    door: FrontDoor, tmp_path: Path
) -> None:
    (validator,) = services("validator")
    async with (
        connected(door.url) as bus,
        serving(validator, door, tmp_path / "1.log"),
        gateway_at(door),
        door.user("edith") as editor,
        door.user("olga") as owner,
        door.user("ulrich") as other,
    ):
        # given a command that was captured
        await send(editor, SCALE, scale("c1"))

        # when an owner, and a user of another organisation, send the same bytes
        repeated = await send(owner, SCALE, scale("c1"))
        foreign = await send(other, SCALE.replace(ORG, OTHER), scale("c1"))

        # then the repetition is the owner's, the service does not do it again, and the other
        # organisation has not reached anything
        assert repeated["id"] == "c1"
        assert (foreign["reason"], foreign["field"]) == ("Invalid", "org")
        log = [json.loads(entry.content) for entry in await read_all(bus) if entry.subject == SCALE]
        assert [each["actor"].split(";")[1] for each in log] == ["edith", "olga"]
        await until(lambda: _outcome_count(bus, "c1", 2))
        assert len(set((await outcomes(bus))["c1"])) == 1


async def _outcome_count(bus: Connection, id: str, count: int) -> bool:
    return len((await outcomes(bus)).get(id, [])) == count


# Budgets.


async def test_a_flood_is_refused_and_delays_nobody_else(door: FrontDoor) -> None:
    async with (
        connected(door.url) as bus,
        gateway_at(door, messages_per_second=1, messages_burst=20),
        door.user("edith") as client,
        door.user("ulrich") as other,
    ):
        # given an organisation that sends more than its rate
        replies = await asyncio.gather(
            *(send(client, SCALE, scale(f"c{number}")) for number in range(60))
        )

        # when another organisation sends a command
        subject = SCALE.replace(ORG, OTHER)
        reply = await send(other, subject, b'{"targetNodes": 1}')

        # then that is taken, and of the flood as much as the burst allows
        assert "position" in reply
        refused = [each for each in replies if "reason" in each]
        assert {each["reason"] for each in refused} == {"TooManyRequests"}
        assert "NODEPOOL_GATEWAY_MESSAGES_PER_SECOND" in str(refused[0]["fix"])
        assert len(await read_all(bus)) == len(replies) - len(refused) + 1 <= 23


async def test_a_flood_of_messages_that_name_no_sender_is_refused_as_any_other(
    door: FrontDoor,
) -> None:
    async with (
        connected(door.url),
        gateway_at(door, messages_per_second=1, messages_burst=20),
        door.user("edith") as client,
    ):
        # given a user who is no member any more
        door.let_in([user for user in USERS if user[1] != "edith"])
        await until(lambda: _is_unknown(client))

        # when the user sends more than the rate of its organisation
        replies = await asyncio.gather(
            *(send(client, SCALE, scale(f"c{number}")) for number in range(60))
        )

        # then the flood is refused, and not examined message by message
        reasons = Counter(str(each.get("reason")) for each in replies)
        assert reasons["TooManyRequests"] >= 37


async def test_an_organisation_that_keeps_flooding_is_shut_out_for_a_moment(
    door: FrontDoor,
) -> None:
    async with (
        connected(door.url),
        gateway_at(door, messages_per_second=1, messages_burst=5),
        door.user("edith") as client,
        door.user("ulrich") as other,
    ):
        # given an organisation that sends as fast as it can, and does not wait for replies
        done = asyncio.Event()

        async def flood() -> None:
            while not done.is_set():
                for _ in range(100):
                    await client.publish(SCALE, b'{"targetNodes": 1}')
                await client.flush()

        flooding = asyncio.create_task(flood())

        # when it is shut out
        await until(lambda: b"organisation floods" in (door.folder / "gateway.log").read_bytes())

        # then another organisation is served, and later it is served again, too
        reply = await send(other, SCALE.replace(ORG, OTHER), b'{"targetNodes": 1}')
        assert "position" in reply
        done.set()
        await flooding
        await until(lambda: _is_taken(client))


async def _is_taken(client: Client) -> bool:
    try:
        return "position" in said(await client.request(SCALE, scale("late"), timeout=1))
    except (NatsTimeout, NoRespondersError):
        return False


async def test_the_bytes_that_an_organisation_adds_to_the_log_are_bounded(door: FrontDoor) -> None:
    # given a storage budget for a few commands about unknown NodePools
    async with (
        connected(door.url),
        gateway_at(door, bytes_per_hour=140_000),
        door.user("edith") as client,
    ):
        # when an organisation sends more
        replies = [
            await send(client, f"np.cmd.{ORG}.prod.p{number}.ScaleNodePool", b'{"targetNodes": 1}')
            for number in range(8)
        ]

        # then the rest is refused
        assert ["position" in reply for reply in replies] == [True] * 4 + [False] * 4
        assert "stored bytes" in str(replies[-1]["error"])


async def test_a_gateway_that_starts_again_knows_what_has_been_stored_within_the_hour(
    door: FrontDoor,
) -> None:
    async def send_some(first: int, count: int) -> list[bool]:
        numbers = range(first, first + count)
        subjects = [f"np.cmd.{ORG}.prod.p{number}.ScaleNodePool" for number in numbers]
        async with door.user("edith") as client:
            # Sent at once, so that some of them are stored as a batch.
            content = b'{"targetNodes": 1}'
            replies = await asyncio.gather(*(send(client, each, content) for each in subjects))
        return ["position" in reply for reply in replies]

    async with connected(door.url) as bus:
        # given an organisation that has used most of its budget, and an operator who counts nowhere
        async with gateway_at(door, bytes_per_hour=140_000):
            assert await send_some(0, 3) == [True] * 3
            for number in range(5):
                subject = f"np.cmd.{ORG}.prod.p{number}.ScaleNodePool"
                await bus.request(subject, scale(f"o{number}"), timeout=PATIENCE_S)

        # when the gateway is replaced by another one
        async with gateway_at(door, bytes_per_hour=140_000) as gateway:
            used = gateway.used_bytes()

            # then that one knows what is used, and lets in the rest of the budget alone
            assert await send_some(10, 3) == [True, False, False]
        async with gateway_at(door, bytes_per_hour=140_000) as gateway:
            assert gateway.used_bytes()[ORG] > used[ORG] > 3 * NEW_OBJECT_BYTES
            assert await send_some(20, 1) == [False]


# Queries out.


REFUSED: tuple[tuple[str, str, dict[str, object], str, str], ...] = (
    ("vera", "Lits", {}, "Invalid", "subject"),
    ("vera", "List", {"kind": "machines"}, "Invalid", "kind"),
    ("vera", "List", {"kind": "nodes", "lmiit": 1}, "Invalid", "lmiit"),
    ("vera", "List", {"kind": "nodes", "limit": 5_000}, "Invalid", "limit"),
    ("vera", "List", {"kind": "nodes", "labelSelector": "a b"}, "Invalid", "labelSelector"),
    ("vera", "List", {"kind": "nodes", "fieldSelector": "a"}, "Invalid", "fieldSelector"),
    ("vera", "List", {"kind": "nodes", "notOlderThan": 10**6}, "Invalid", "notOlderThan"),
    ("vera", "Get", {"kind": "nodes", "name": "a"}, "Invalid", "cluster"),
    ("vera", "Get", {"kind": "nodes", "cluster": "prod", "name": "a"}, "NotFound", "name"),
    ("vera", "Watch", {"kind": "nodes", "since": "x"}, "Invalid", "since"),
    ("vera", "Watch", {"kind": "nodes", "since": "other-4"}, "Expired", "since"),
    ("vera", "Events", {"cluster": ">"}, "Invalid", "cluster"),
    ("vera", "Messages", {"cluster": "prod", "names": ["NodeUpdate"]}, "Invalid", "names"),
    ("vera", "Messages", {"cluster": "prod", "names": MANY, "last": True}, "Invalid", "names"),
    ("vera", "Messages", {"cluster": ">", "names": MANY}, "Invalid", "cluster"),
    ("vera", "Explain", {"cluster": "prod", "pool": "none"}, "NotFound", "pool"),
    ("vera", "FindCapacity", {"selections": []}, "Invalid", "selections"),
    ("agent-prod", "List", {"kind": "nodepools", "cluster": "test"}, "Forbidden", "cluster"),
    ("agent-prod", "List", {"kind": "quotas"}, "Forbidden", "kind"),
    ("agent-prod", "Events", {"cluster": "test"}, "Forbidden", "cluster"),
    ("agent-prod", "Messages", {"cluster": "test", "names": MANY}, "Forbidden", "cluster"),
    ("agent-prod", "FindCapacity", {"selections": [SELECTION]}, "Forbidden", "subject"),
)
"""Queries that cannot be answered: the user, the query, its fields, the reason and the field."""


async def test_a_query_that_cannot_be_answered_is_refused(door: FrontDoor) -> None:
    async with (
        connected(door.url),
        gateway_at(door),
        door.user("vera") as vera,
        door.user("agent-prod") as agent,
    ):
        for user, query, fields, reason, field in REFUSED:
            # given a query, when a user asks it
            refusal = await ask(vera if user == "vera" else agent, query, ORG, **fields)

            # then the refusal names the field and the fix
            assert (refusal["reason"], refusal["field"]) == (reason, field), (query, fields)
            assert refusal["fix"], (query, fields)


async def test_an_organisation_sees_its_own_objects_only(door: FrontDoor, tmp_path: Path) -> None:
    # given a cluster of one organisation
    validator, aggregator = services("validator", "aggregator")
    async with (
        connected(door.url) as bus,
        serving(validator, door, tmp_path / "1.log"),
        serving(aggregator, door, tmp_path / "2.log"),
        gateway_at(door),
        door.user("vera") as own,
        door.user("ulrich") as other,
    ):
        command = RegisterCluster(org=ORG, cluster="prod", zone=ZONE)
        await api.publish_event(bus, subject_of(command, ""), encode_command(command, "c1", "op"))
        await until(lambda: _has_clusters(own, 1))

        # when another organisation asks for it
        listed = await ask(other, "List", OTHER, kind="clusters")
        got = await ask(other, "Get", OTHER, kind="clusters", name="prod")
        dotted = await ask(other, "Get", OTHER, kind="clusters", name="acme.prod")
        events = await ask(other, "Events", OTHER, cluster="prod")
        watched = await ask(
            other, "Watch", OTHER, kind="clusters", since=str(listed["revision"]), waitSeconds=0
        )

        # then it gets the answers of an organisation that has nothing
        assert (listed["items"], events["items"], watched["changes"]) == ([], [], [])
        assert got["reason"] == dotted["reason"] == "NotFound"
        assert str(got["error"]).replace("prod", "x") == str(dotted["error"]).replace(
            "acme.prod", "x"
        )


async def _has_clusters(client: Client, count: int) -> bool:
    items = (await ask(client, "List", kind="clusters"))["items"]
    assert isinstance(items, list)
    return len(items) == count


async def test_a_watch_returns_what_has_changed_since_and_waits_for_it(
    door: FrontDoor, tmp_path: Path
) -> None:
    validator, aggregator = services("validator", "aggregator")
    async with (
        connected(door.url) as bus,
        serving(validator, door, tmp_path / "1.log"),
        serving(aggregator, door, tmp_path / "2.log"),
        gateway_at(door),
        gateway_at(door),
        door.user("vera") as viewer,
    ):
        # given a watch from a list, which waits
        revision = str((await ask(viewer, "List", kind="clusters"))["revision"])
        watching = asyncio.create_task(
            ask(viewer, "Watch", kind="clusters", since=revision, waitSeconds=15)
        )

        # when a cluster is registered
        command = RegisterCluster(org=ORG, cluster="prod", zone=ZONE)
        await api.publish_event(bus, subject_of(command, ""), encode_command(command, "c1", "op"))

        # then the watch returns it, and a watch from there, at any replica, returns nothing more
        changes = (await watching)["changes"]
        assert isinstance(changes, list)
        assert [(each["type"], each["key"]) for each in changes] == [("MODIFIED", "prod")]
        revision = str((await watching)["revision"])
        for _ in range(4):
            further = await ask(viewer, "Watch", kind="clusters", since=revision, waitSeconds=0)
            assert further["changes"] == []


async def test_an_organisation_cannot_hold_more_watches_than_allowed(door: FrontDoor) -> None:
    async with connected(door.url), gateway_at(door, watches=2), door.user("vera") as client:
        # given as many watches as are allowed
        revision = str((await ask(client, "List", kind="clusters"))["revision"])
        fields = {"kind": "clusters", "since": revision, "waitSeconds": 1.0}

        # when one more is opened
        answers = await asyncio.gather(*(ask(client, "Watch", ORG, **fields) for _ in range(3)))

        # then one of them is refused
        reasons = [answer.get("reason") for answer in answers]
        assert sorted(map(str, reasons)) == ["None", "None", "TooManyRequests"]


# The gateway as a program.


async def test_a_gateway_that_is_killed_loses_and_doubles_nothing(
    door: FrontDoor, tmp_path: Path
) -> None:
    (validator,) = services("validator")
    first, second = free_port(), free_port()
    async with (
        connected(door.url) as bus,
        serving(validator, door, tmp_path / "1.log"),
        door.user("edith") as client,
    ):
        with (
            launched("gateway", door, tmp_path, first, members_file=str(door.members)) as one,
            launched("gateway", door, tmp_path, second, members_file=str(door.members)) as two,
        ):
            await until(lambda: _are_ready(client))

            # given commands that are sent until they are acknowledged
            async def send_until_taken(id: str) -> None:
                while True:
                    try:
                        if "position" in await _try(client, id):
                            return
                    except (NatsTimeout, NoRespondersError):
                        continue

            sending = [asyncio.create_task(send_until_taken(f"k{n}")) for n in range(300)]

            # when a gateway is killed in the middle
            await until(lambda: _has_messages(bus, 50))
            one.process.kill()
            await asyncio.gather(*sending)

            # then each command is done once
            await until(lambda: _have_outcomes(bus, 300))
            assert two.process.poll() is None
            log = [json.loads(e.content)["id"] for e in await read_all(bus) if e.subject == SCALE]
            assert set(log) == {f"k{n}" for n in range(300)}


async def _try(client: Client, id: str) -> dict[str, object]:
    command = CordonNode(org=ORG, cluster="prod", pool="train", node="n1")
    subject = SCALE if id else subject_of(command, "")
    return said(await client.request(subject, scale(id), timeout=0.5))


async def _are_ready(client: Client) -> bool:
    try:
        inbox = client.new_inbox()
        replies = await client.subscribe(inbox)
        await client.publish(f"np.api.{ORG}.List", b'{"kind": "clusters"}', reply=inbox)
        return b"items" in (await replies.next_msg(timeout=0.5)).data
    except (NatsTimeout, NoRespondersError):
        return False


async def _has_messages(bus: Connection, count: int) -> bool:
    return await api.last_position(bus, "NODEPOOL") >= count


async def _have_outcomes(bus: Connection, count: int) -> bool:
    return len(await outcomes(bus)) >= count


async def test_a_gateway_says_which_endpoints_it_has_and_how_they_are_used(door: FrontDoor) -> None:
    async with connected(door.url) as bus, gateway_at(door), door.user("edith") as client:
        # given a command that was taken and one that was refused
        await send(client, SCALE, scale("c1"))
        await send(client, SCALE, b"{")

        # when the platform asks for services
        ping, info, stats = [
            said(await bus.request(f"$SRV.{verb}", timeout=PATIENCE_S))
            for verb in ("PING", "INFO", "STATS")
        ]

        # then they say so as NATS services do
        assert (ping["name"], ping["type"]) == ("gateway", "io.nats.micro.v1.ping_response")
        assert isinstance(info["endpoints"], list)
        assert [each["subject"] for each in info["endpoints"]] == [
            "np.door.cmd.>",
            "np.door.evt.agent.>",
            "np.door.api.>",
        ]
        assert isinstance(stats["endpoints"], list)
        taken = stats["endpoints"][0]
        assert (taken["num_requests"], taken["num_errors"]) == (2, 1)


async def test_a_gateway_shows_its_work_as_metrics_and_whether_it_is_ready(
    door: FrontDoor, tmp_path: Path
) -> None:
    async with connected(door.url), door.user("edith") as client:
        # given a gateway as a program
        with launched(
            "gateway", door, tmp_path, free_port(), members_file=str(door.members)
        ) as one:
            await until(lambda: _are_ready(client))

            # when it has taken a command, refused another, and answered queries
            await send(client, SCALE, scale("c1"))
            await send(client, SCALE, b"{")

            # then its pages say so
            page = one.page("/metrics")
            taken = 'endpoint="commands",nodepool_service="gateway",org="acme",result='
            assert f'{taken}"stored"}} 1.0' in page
            assert f'{taken}"Invalid"}} 1.0' in page
            assert one.metric("nodepool_gateway_stored_bytes") > 0
            assert one.page("/readyz") == one.page("/livez") == "ok\n"
            known = {f'query="{name}"' for name in (*QUERIES, "unknown")}
            assert all(name in page for name in known)


async def test_what_is_counted_of_an_organisation_goes_with_it(
    door: FrontDoor, tmp_path: Path
) -> None:
    async with connected(door.url), door.user("edith") as client:
        # given a gateway that has taken a command of an organisation, and lets in another one
        with launched(
            "gateway", door, tmp_path, free_port(), members_file=str(door.members)
        ) as one:
            await until(lambda: _are_ready(client))
            await send(client, SCALE, scale("c1"))
            before = one.page("/metrics")

            # when the organisation has no member any more
            door.let_in([user for user in USERS if user[0] != ORG])

            # then it has no count any more, and the other one has
            counted = f'nodepool_service="gateway",org="{ORG}",result='
            await until(lambda: counted not in one.page("/metrics"))
            assert counted in before
            assert counted.replace(ORG, OTHER) in one.page("/metrics")

            # and begins anew once it is let in again
            door.let_in()
            await until(lambda: f'{counted}"stored"}} 0.0' in one.page("/metrics"))
