"""The boot images of emulated machines, which ask the service and report to it as real ones do."""

import asyncio
from contextlib import suppress
from http import HTTPStatus
from typing import NamedTuple

import aiohttp

PAUSE_S = 0.1


class Reply(NamedTuple):
    """What an image was answered. document: empty unless the status is 200."""

    status: int
    document: dict[str, object]


async def ask(method: str, address: str, content: object = None) -> Reply:
    """What the service answers in the end: an image asks on while it gets no answer, or "later"."""
    async with aiohttp.ClientSession() as session:
        while True:
            with suppress(aiohttp.ClientError):
                async with session.request(method, address, json=content) as answer:
                    is_told = answer.status == HTTPStatus.OK
                    document = await answer.json() if is_told else {}
                    if answer.status != HTTPStatus.SERVICE_UNAVAILABLE:
                        return Reply(answer.status, document)
            await asyncio.sleep(PAUSE_S)
