"""What the API server of a cluster may send."""

import json
from collections.abc import Mapping

import pytest

from nodepool.kube.api import Resource
from nodepool.kube.failures import ApiUnreachable
from support.agent.answered import answered

NODES = Resource("api/v1", "nodes", "Node")


async def watched(body: bytes) -> list[Mapping[str, object]]:
    """The events of a watch to which a server replies this."""
    async with answered(lambda _path: (200, body)) as api, api.watch(NODES, {}) as events:
        return [event async for event in events]


async def test_each_line_of_a_watch_is_an_event() -> None:
    assert await watched(b'{"type":"ADDED"}\n{"type":"DELETED"}\n') == [
        {"type": "ADDED"},
        {"type": "DELETED"},
    ]


@pytest.mark.parametrize("letter", ["\u0085", "\u2028", "\x0b"])
async def test_an_end_of_line_within_a_text_ends_no_event(letter: str) -> None:
    event = {"type": "ADDED", "object": {"metadata": {"name": f"a{letter}b"}}}
    line = json.dumps(event, ensure_ascii=False).encode()

    assert await watched(line + b"\n") == [event]


@pytest.mark.parametrize(
    "line", [b"<html>", b"[]", b"\xff", b"[" * 100_000], ids=["html", "list", "bytes", "deep"]
)
async def test_a_line_that_is_no_object_is_a_fault_of_the_connection(line: bytes) -> None:
    with pytest.raises(ApiUnreachable, match="a watch sent a line that is no JSON object"):
        await watched(line + b"\n")
