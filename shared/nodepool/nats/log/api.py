"""Requests to the JetStream API, and single messages stored and read through it.

Every function raises the errors of `nodepool.nats.wire.errors`. If a request cannot be sent or gets
no reply, it raises the errors of the client (`nats.errors.Error`, `OSError`). The API is described
at https://docs.nats.io/reference/reference-protocols/nats_api_reference.
"""

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime

from nodepool.contract.log import CONTENT_TYPE, MESSAGE_BYTES_MAX, Entry
from nodepool.nats.wire.client import BusClient
from nodepool.nats.wire.errors import Busy, Conflict, InDoubt, ServerRefusal
from nodepool.nats.wire.library import Msg, NatsError
from nodepool.nats.wire.protocol import parse_headers

REPLY_TIMEOUT_S = 5.0
"""How long to wait for the server's reply."""
HURRIED_REPLY_S = 1.0
"""How long to wait for the reply while the cluster elects leaders: some requests then get none."""
CONFLICT_CODES = frozenset({10071, 10164, 10201})
"""Wrong last sequence, another write in flight, a duplicate in a batch: another write was first."""

BUSY_CODE = 10167
"""The server's queue of messages that wait to be stored is full."""
_NO_MESSAGE = 10037
_EPOCH = datetime.fromtimestamp(0, UTC)
EXPECTED_SEQUENCE = "Nats-Expected-Last-Subject-Sequence"
"""The header that names the expected position of the last message on the same subject.

The server stores the message only if that position is right.
"""

Json = dict[str, object]


async def request(
    client: BusClient, subject: str, body: Mapping[str, object] | None = None
) -> Json:
    """Return the reply of the API; raise Conflict or ServerRefusal if the reply holds an error."""
    content = json.dumps(body).encode() if body is not None else b""
    timeout_s = HURRIED_REPLY_S if client.hurries else REPLY_TIMEOUT_S
    return parse_reply(await client.request(subject, content, timeout=timeout_s))


def parse_reply(message: Msg) -> Json:
    """Return the content of a JetStream reply; raise Conflict or ServerRefusal if it is an error.

    Raises InDoubt if nothing serves the subject, such as while a stream has no leader.
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
    """Return the position in the reply to a publish; raise the same errors as `parse_reply`."""
    return int(str(parse_reply(message)["seq"]))


def check_limits(client: BusClient) -> None:
    """Raise ServerRefusal if the `max_payload` of the server is below MESSAGE_BYTES_MAX."""
    most = client.max_payload
    if most < MESSAGE_BYTES_MAX:
        text = f"its max_payload is {most} bytes; set it to {MESSAGE_BYTES_MAX} or more"
        raise ServerRefusal(0, text)


async def last_position(client: BusClient, stream: str) -> int:
    """Return the position of the newest message of a stream; 0 if the stream is empty."""
    return (await extent(client, stream))[0]


async def bounds(client: BusClient, stream: str) -> tuple[int, int]:
    """Return the positions of the oldest and of the newest message of a stream.

    The oldest is the next message to come, if the stream holds none.
    """
    state = (await request(client, f"$JS.API.STREAM.INFO.{stream}")).get("state")
    assert isinstance(state, dict), "a stream's info has a state"
    return max(1, int(state["first_seq"])), int(state["last_seq"])


async def extent(client: BusClient, stream: str) -> tuple[int, int]:
    """Return the position of the newest message of a stream, and the number of its subjects."""
    state = (await request(client, f"$JS.API.STREAM.INFO.{stream}")).get("state")
    assert isinstance(state, dict), "a stream's info has a state"
    return int(state["last_seq"]), int(state.get("num_subjects", 0))


async def last_message(client: BusClient, stream: str, subject: str) -> Entry | None:
    """Return the newest message on a subject; None if the subject has no message."""
    reply = await _direct_get(client, stream, {"last_by_subj": subject})
    headers = reply.headers or {}
    if headers.get("Status") == "404":
        return None
    if "Nats-Sequence" not in headers:
        raise InDoubt(f"no answer about {subject}: {headers.get('Status')}")
    return entry_of(reply, headers)


async def leaders_message(client: BusClient, stream: str, subject: str) -> Entry | None:
    """Return the newest message on a subject from the stream leader, which misses no message.

    Any copy answers `last_message`, and a follower may be some milliseconds behind.
    """
    return await _leaders(client, stream, {"last_by_subj": subject})


async def leaders_message_at(client: BusClient, stream: str, position: int) -> Entry | None:
    """Return the message at a position from the stream leader, without the right to a direct get.

    That right is wide: the server sends a stored message to any subject that the sender names as
    the reply subject, even if the sender may not publish there.
    """
    return await _leaders(client, stream, {"seq": position}) if position > 0 else None


async def leaders_next_message(
    client: BusClient, stream: str, subject: str, position: int
) -> Entry | None:
    """Return the first message of a subject at or after a position; None if none exists."""
    return await _leaders(client, stream, {"seq": position, "next_by_subj": subject})


async def leaders_message_since(client: BusClient, stream: str, time: datetime) -> Entry | None:
    """Return the first message stored at a time with a zone, or later; None if none exists."""
    # The server counts nanoseconds since 1970 in 64 bits, so it takes a time after 2262 for a past.
    since = max(time, _EPOCH)
    entry = await _leaders(client, stream, {"start_time": since.isoformat()})
    return entry if entry is not None and entry.time >= since else None


async def _leaders(client: BusClient, stream: str, which: Mapping[str, object]) -> Entry | None:
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


async def message_at(client: BusClient, stream: str, position: int) -> Entry | None:
    """Return the message at a position; None if no message is there or the position is invalid."""
    reply = await _direct_get(client, stream, {"seq": position})
    headers = reply.headers or {}
    return entry_of(reply, headers) if "Nats-Sequence" in headers else None


async def _direct_get(client: BusClient, stream: str, body: Mapping[str, object]) -> Msg:
    subject = f"$JS.API.DIRECT.GET.{stream}"
    return await client.request(subject, json.dumps(body).encode(), timeout=REPLY_TIMEOUT_S)


def entry_of(reply: Msg, headers: Mapping[str, str]) -> Entry:
    """Return the Entry for a message as a direct get replies with it."""
    position, subject = int(headers["Nats-Sequence"]), headers["Nats-Subject"]
    time = parse_time(headers["Nats-Time-Stamp"])
    return Entry(position, time, subject, reply.data, headers)


def parse_time(text: str) -> datetime:
    """Return a time that the server wrote, in UTC; its nanoseconds are cut to microseconds."""
    return datetime.fromisoformat(text[:26].rstrip("Z") + "+00:00")


async def publish(
    client: BusClient,
    subject: str,
    content: bytes,
    headers: Mapping[str, str] | None = None,
    *,
    timeout_s: float = REPLY_TIMEOUT_S,
) -> int:
    """Store a message and return its position.

    Raises Conflict if a condition in `headers` does not hold, InDoubt if no reply comes in time,
    or ServerRefusal.
    """
    given = dict(headers or {})
    try:
        reply = await client.request(subject, content, timeout=timeout_s, headers=given)
    except (NatsError, OSError) as error:
        raise InDoubt(f"{subject} may or may not be stored: {error}") from error
    return stored_position(reply)


async def publish_event(
    client: BusClient,
    subject: str,
    content: bytes,
    headers: Mapping[str, str] | None = None,
    *,
    timeout_s: float = REPLY_TIMEOUT_S,
) -> int:
    """Store a CloudEvent as structured JSON and return its position; see `publish`.

    The message has no `Nats-Msg-Id`: the server drops any message with an id that it knows, even if
    another sender used that id for another message.
    """
    headers = {"Content-Type": CONTENT_TYPE, **(headers or {})}
    return await publish(client, subject, content, headers, timeout_s=timeout_s)
