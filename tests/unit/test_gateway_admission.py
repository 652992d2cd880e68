"""What the front door stores of a message, and what it refuses; the rest is tried on a server."""

import json

import pytest

from contracts.samples import message_classes, sample
from gateway.admission import Admitted, admit
from gateway.refusals import QUOTED_MAX, Refusal
from nodepool.contract.actors import (
    Actor,
    Member,
    Sender,
    actor_in,
    actor_of,
    members_in,
    members_text,
    sender_in,
)
from nodepool.contract.decode import decode
from nodepool.contract.door import REQUEST_INFO, door_of
from nodepool.contract.messages import Command, Envelope, wrap
from nodepool.contract.opening import COMMAND_BYTES_MAX
from nodepool.contract.roles import ROLES, SENDERS, Role
from nodepool.contract.subjects import subject_of
from nodepool.nats.wire.protocol import parse_headers

COMMANDS = [kind for kind in message_classes().values() if issubclass(kind, Command)]
OF_ORGS = [kind for kind in COMMANDS if "org" in kind.model_fields]


def actor(role: Role, org: str = "acme", cluster: str = "") -> Actor:
    """A sender with a role."""
    return Actor(org, "alice", role, "10.0.0.7", cluster)


@pytest.mark.parametrize("kind", OF_ORGS, ids=lambda kind: kind.__name__)
def test_a_command_is_stored_as_a_service_would_have_read_it(kind: type[Command]) -> None:
    # given a command of an organisation, from a sender with the right role
    command = sample(kind)
    subject, role = subject_of(command, ""), sorted(SENDERS[kind])[0]
    org, cluster, _ = command.path
    sender = actor(role, org, cluster if role == "agent" else "")
    content = wrap(command, id="c1", source="me").encode()

    # when it comes in
    admitted = admit(door_of(subject), content, {}, sender, "made")

    # then the services read the same command from what is stored, and who has sent it
    assert isinstance(admitted, Admitted)
    before = decode(kind, subject, content, {}, 1)
    after = decode(kind, admitted.subject, admitted.content, {}, 1)
    assert isinstance(before, Envelope)
    assert isinstance(after, Envelope)
    assert after == before.model_copy(update={"actor": sender.text})


@pytest.mark.parametrize("kind", COMMANDS, ids=lambda kind: kind.__name__)
def test_a_role_sends_the_commands_of_the_table_and_no_others(kind: type[Command]) -> None:
    # given a command and each role, when a sender of its organisation sends it
    command = sample(kind)
    org, cluster, _ = command.path
    results = {
        role: admit(
            door_of(subject_of(command, "")),
            wrap(command, id="c1", source="me").encode(),
            {},
            actor(role, org, cluster if role == "agent" else ""),
            "made",
        )
        for role in ROLES
    }

    # then it comes in if the table has the role
    assert {role for role, found in results.items() if isinstance(found, Admitted)} == SENDERS[kind]


@pytest.mark.parametrize(
    ("headers", "id"),
    [({}, "made"), ({"Nats-Msg-Id": "m"}, "m"), ({"nats-msg-id": "m", "CE-ID": "ce"}, "ce")],
)
def test_bare_json_has_the_id_of_its_header_or_one_that_is_made(
    headers: dict[str, str], id: str
) -> None:
    subject = "np.door.cmd.acme.prod.train.ScaleNodePool"

    admitted = admit(subject, b'{"targetNodes": 1}', headers, actor("editor"), "made")

    assert isinstance(admitted, Admitted)
    assert (admitted.id, json.loads(admitted.content)["id"]) == (id, id)


def test_a_command_that_would_be_too_large_with_its_actor_is_refused() -> None:
    content = {"specversion": "1.0", "id": "c1", "source": "", "data": {"targetNodes": 1}}
    content["source"] = "x" * (COMMAND_BYTES_MAX - len(json.dumps(content)))
    subject = "np.door.cmd.acme.prod.train.ScaleNodePool"

    refusal = admit(subject, json.dumps(content).encode(), {}, actor("editor"), "made")

    assert isinstance(refusal, Refusal)
    assert refusal.fix == f"send at most {COMMAND_BYTES_MAX} bytes"


def test_a_refusal_is_small_whatever_the_sender_wrote() -> None:
    refusal = Refusal("Invalid", "x" * 9_999, "y" * 9_999, "z" * 9_999)

    assert len(refusal.content) < 4 * QUOTED_MAX
    assert refusal.headers["Nats-Service-Error-Code"] == "400"


# Who has sent it.


def test_the_actor_of_a_stored_command_can_be_read_again() -> None:
    assert actor_in(actor("editor").text) == actor("editor")
    assert actor_in("acme;alice;king;10.0.0.7") is None
    assert actor_in("acme") is None


@pytest.mark.parametrize(
    "info",
    [
        *(None, "", "[]", "{", '{"acc":"a","user":"u"}', '{"acc":"a","user":1,"host":"h"}'),
        *('{"acc":"a;b","user":"u","host":"h"}', '{"acc":"","user":"u","host":"h"}'),
    ],
)
def test_a_sender_that_the_server_does_not_name_is_unknown(info: str | None) -> None:
    assert sender_in(info) is None


def test_a_sender_is_a_member_of_its_own_account_only() -> None:
    # given two members of the same name in two organisations
    members = members_in(
        members_text(
            [
                Member("acme", "UAAA", "alice", "editor"),
                Member("umbra", "alice", "alice", "agent", "prod"),
            ]
        )
    )

    # when senders are looked up, then account and user have to be theirs
    assert actor_of(Sender("acme", "UAAA", "h"), members) == Actor("acme", "alice", "editor", "h")
    assert actor_of(Sender("umbra", "UAAA", "h"), members) is None
    assert actor_of(Sender("umbra", "alice", "h"), members) == Actor(
        "umbra", "alice", "agent", "h", "prod"
    )


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"members": [1]}', '{"members": [{"account": 1}]}'),
        members_text([Member("acme", "a", "a", "operator")]),
        members_text([Member("acme", "a", "a", "agent")]),
        members_text([Member("acme", "a", "a", "viewer", "prod")]),
        members_text([Member("acme", "", "a", "viewer")]),
        members_text([Member("acme", "a", "a", "viewer"), Member("acme", "a", "b", "owner")]),
    ],
)
def test_a_members_file_that_is_not_whole_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        members_in(text)


@pytest.mark.parametrize(
    ("raw", "info"),
    [
        (b"NATS/1.0\r\nNats-Request-Info: {1}\r\n\r\n", "{1}"),
        (b"NATS/1.0\r\nnats-request-info: {0}\r\nNats-Request-Info: {1}\r\n\r\n", "{1}"),
        (b"NATS/1.0\r\nNats-Request-Info : {0}\r\nNats-Request-Info: {1}\r\n\r\n", "{1}"),
        (b"NATS/1.0\r\nNats-Request-Info : {0}\r\nX: Nats-Request-Info: {1}\r\n\r\n", None),
        (b"NATS/1.0\r\nNats-Request-Info : {0}\r\n\r\n", None),
        (b"NATS/1.0\r\nNats-Request-Info: {0}\r\nX: 1\r\n\r\n", None),
    ],
)
def test_only_the_last_header_can_name_the_sender(raw: bytes, info: str | None) -> None:
    assert (parse_headers(raw) or {}).get(REQUEST_INFO) == info
