"""Requests to the JetStream API, and single messages stored and read through it.

Every function raises the errors of `nodepool.nats.errors`, and those of the client
(`nats.errors.Error`, `OSError`) where a request cannot be sent or is not answered. The API is
described at https://docs.nats.io/reference/reference-protocols/nats_api_reference.
"""

import base64
import json
from collections.abc import Mapping
from datetime import datetime

from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from nodepool.contract.log import CONTENT_TYPE, MESSAGE_BYTES_MAX, Entry
from nodepool.nats.errors import Busy, Conflict, InDoubt, ServerRefusal
from nodepool.nats.membership import MemberClient
from nodepool.nats.protocol import parse_headers

REPLY_TIMEOUT_S = 5.0
"""How long to wait for the server's reply."""
HURRIED_REPLY_S = 1.0
"""How long while the servers of a cluster choose leaders, when some requests have none."""
CONFLICT_CODES = frozenset({10071, 10164, 10201})
"""Wrong last sequence, another write in flight, a duplicate in a batch: another came first."""

BUSY_CODE = 10167
"""The server's queue of messages that are to be stored is full."""
_NO_MESSAGE = 10037
EXPECTED_SEQUENCE = "Nats-Expected-Last-Subject-Sequence"
"""The header that makes storing depend on where the last message on the same subject lies."""

Json = dict[str, object]


async def request(
    client: MemberClient, subject: str, body: Mapping[str, object] | None = None
) -> Json:
    """The reply to a request to the API; raises Conflict or ServerRefusal for one with an error."""
    content = json.dumps(body).encode() if body is not None else b""
    timeout_s = HURRIED_REPLY_S if client.hurries else REPLY_TIMEOUT_S
    return parse_reply(await client.request(subject, content, timeout=timeout_s))


def parse_reply(message: Msg) -> Json:
    """A reply of JetStream; raises Conflict or ServerRefusal for one with an error.

    Raises InDoubt where nothing serves the subject, as while a stream has no leader.
    """
    if message.headers and message.headers.get("Status") == "503":
        raise InDoubt("JetStream does not answer")
    reply: Json = json.loads(message.data)
    error = reply.get("error")
    if isinstance(error, dict):
        code, description = int(error.get("err_code", 0)), str(error.get("description"))
        if code in CONFLICT_CODES:
            raise Conflict(description)
        if code == BUSY_CODE:
            raise Busy(code, description)
        raise ServerRefusal(code, description)
    return reply


def stored_position(message: Msg) -> int:
    """The position in the reply to a publish; raises as `parse_reply` does."""
    return int(str(parse_reply(message)["seq"]))


def check_limits(client: MemberClient) -> None:
    """Raises ServerRefusal where the server takes no messages as large as services may say."""
    most = client.max_payload
    if most < MESSAGE_BYTES_MAX:
        text = f"its max_payload is {most} bytes; set it to {MESSAGE_BYTES_MAX} or more"
        raise ServerRefusal(0, text)


async def last_position(client: MemberClient, stream: str) -> int:
    """The position of the newest message of a stream; 0 for an empty one."""
    return (await extent(client, stream))[0]


async def extent(client: MemberClient, stream: str) -> tuple[int, int]:
    """The position of the newest message of a stream, and how many subjects it has."""
    state = (await request(client, f"$JS.API.STREAM.INFO.{stream}")).get("state")
    assert isinstance(state, dict), "a stream's info has a state"
    return int(state["last_seq"]), int(state.get("num_subjects", 0))


async def last_message(client: MemberClient, stream: str, subject: str) -> Entry | None:
    """The newest message on a subject; None where there is none."""
    reply = await _direct_get(client, stream, {"last_by_subj": subject})
    headers = reply.headers or {}
    if headers.get("Status") == "404":
        return None
    if "Nats-Sequence" not in headers:
        raise InDoubt(f"no answer about {subject}: {headers.get('Status')}")
    return entry_of(reply, headers)


async def leaders_message(client: MemberClient, stream: str, subject: str) -> Entry | None:
    """As `last_message`, from the leader of the stream: nothing that is stored is missing.

    Any copy answers `last_message`, and one that follows may be some milliseconds behind.
    """
    return await _leaders(client, stream, {"last_by_subj": subject})


async def leaders_message_at(client: MemberClient, stream: str, position: int) -> Entry | None:
    """As `message_at`, from the leader of the stream, and without the right to a direct get.

    That right is a wide one: the server replies with what is stored on any subject that the sender
    asks it to, also where the sender may not publish.
    """
    return await _leaders(client, stream, {"seq": position})


async def leaders_next_message(
    client: MemberClient, stream: str, subject: str, position: int
) -> Entry | None:
    """Return the first message of a subject at or after a position; None where there is none."""
    return await _leaders(client, stream, {"seq": position, "next_by_subj": subject})


async def _leaders(client: MemberClient, stream: str, which: Mapping[str, object]) -> Entry | None:
    try:
        reply = await request(client, f"$JS.API.STREAM.MSG.GET.{stream}", which)
    except ServerRefusal as refusal:
        if refusal.code != _NO_MESSAGE:
            raise
        return None
    message = reply["message"]
    assert isinstance(message, dict), "a reply without an error has a message"
    headers = parse_headers(base64.b64decode(message.get("hdrs", ""))) or {}
    content = base64.b64decode(message.get("data", ""))
    time = parse_time(message["time"])
    return Entry(message["seq"], time, message["subject"], content, headers)


async def message_at(client: MemberClient, stream: str, position: int) -> Entry | None:
    """The message at a position; None where there is none, or the position cannot be one."""
    reply = await _direct_get(client, stream, {"seq": position})
    headers = reply.headers or {}
    return entry_of(reply, headers) if "Nats-Sequence" in headers else None


async def _direct_get(client: MemberClient, stream: str, body: Mapping[str, object]) -> Msg:
    subject = f"$JS.API.DIRECT.GET.{stream}"
    return await client.request(subject, json.dumps(body).encode(), timeout=REPLY_TIMEOUT_S)


def entry_of(reply: Msg, headers: Mapping[str, str]) -> Entry:
    """A message of a stream in the form in which a direct get replies with it."""
    position, subject = int(headers["Nats-Sequence"]), headers["Nats-Subject"]
    time = parse_time(headers["Nats-Time-Stamp"])
    return Entry(position, time, subject, reply.data, headers)


def parse_time(text: str) -> datetime:
    """A moment as the server writes it, in UTC: with nanoseconds, of which Python reads micro."""
    return datetime.fromisoformat(text[:26].rstrip("Z") + "+00:00")


async def publish(
    client: MemberClient,
    subject: str,
    content: bytes,
    headers: Mapping[str, str] | None = None,
    *,
    timeout_s: float = REPLY_TIMEOUT_S,
) -> int:
    """Stores one message and returns its position.

    Raises Conflict where a condition in `headers` does not hold, InDoubt without a reply in time,
    or ServerRefusal.
    """
    given = dict(headers or {})
    try:
        reply = await client.request(subject, content, timeout=timeout_s, headers=given)
    except (NatsError, OSError) as error:
        raise InDoubt(f"{subject} may or may not be stored: {error}") from error
    return stored_position(reply)


async def publish_event(
    client: MemberClient,
    subject: str,
    content: bytes,
    headers: Mapping[str, str] | None = None,
    *,
    timeout_s: float = REPLY_TIMEOUT_S,
) -> int:
    """The same for a CloudEvent as structured JSON.

    It has no `Nats-Msg-Id`: the server drops any message with an id that it knows, also where
    another sender has used that id for something else.
    """
    headers = {"Content-Type": CONTENT_TYPE, **(headers or {})}
    return await publish(client, subject, content, headers, timeout_s=timeout_s)
