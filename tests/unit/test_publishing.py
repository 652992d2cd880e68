"""How a message is written for the server: the same bytes as nats-py writes."""

from collections.abc import Mapping

import pytest

from nodepool.nats.wire.client import BusClient, format_headers
from nodepool.nats.wire.library import Client


class Recorder(BusClient):
    """A client that keeps what it would send."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []

    async def _send_command(self, cmd: bytes, priority: bool = False) -> None:
        self.sent.append(cmd)


HEADERS: Mapping[str, dict[str, str] | None] = {
    "none": None,
    "those of a commit": {
        "Nats-Batch-Id": "0123456789abcdef",
        "Nats-Batch-Sequence": "17",
        "Content-Type": "application/cloudevents+json; charset=utf-8",
    },
    "an id of any characters": {"Nats-Msg-Id": "größer: 1"},
    "an empty value": {"Nats-Msg-Id": ""},
    "spaces around a value": {"Nats-Msg-Id": "  c1 "},
    "a line end within a value": {"Nats-Msg-Id": "c1\r\nNats-Rollup: all"},
    "a line end after a value": {"Nats-Msg-Id": "c1\n"},
}


@pytest.mark.parametrize("name", HEADERS)
async def test_the_bytes_of_a_message_are_those_of_nats_py(name: str) -> None:
    # given a client of the product
    client, headers = Recorder(), HEADERS[name]

    # when it and nats-py send the same message
    await client._send_publish("np.cmd.a.b.c.D", "inbox.1", b"content", 7, headers)
    await Client._send_publish(client, "np.cmd.a.b.c.D", "inbox.1", b"content", 7, headers)

    # then the server gets the same
    ours, theirs = client.sent
    assert ours == theirs
    assert client.stats["out_msgs"] == 2
    assert client.stats["out_bytes"] == 14


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Nats-Msg-Id": "c1\nNats-Rollup: all"}, id="a line end in a value"),
        pytest.param({"Nats-Msg-Id: c1\r\nNats-Rollup": "all"}, id="a line end in a name"),
        pytest.param({"Nats-Msg-Id: c1": "2"}, id="a colon in a name"),
        pytest.param({"": "1"}, id="an empty name"),
    ],
)
def test_headers_that_would_be_read_as_others_are_left_to_nats_py(headers: dict[str, str]) -> None:
    assert format_headers(headers) is None
