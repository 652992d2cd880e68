"""Requests to the gateway, which are sent again while no gateway answers."""

import asyncio
import json
import random
from collections.abc import Mapping
from typing import Final, NoReturn

from nodepool.client.errors import ClientError, Refused, Unreachable, build_denial, not_responding
from nodepool.client.session import Session
from nodepool.contract.door import QUERIES
from nodepool.contract.keys import token
from nodepool.nats.wire.addresses import without_password
from nodepool.nats.wire.errors import Denied
from nodepool.nats.wire.library import NatsError
from nodepool.nats.wire.waiting import RETRY_S
from nodepool.state.back_off import pause_s

ATTEMPT_S: Final = 7.0
"""How long an answer may take, in seconds; the gateway waits for the read model for up to 5."""
PROMPT_S: Final = 2.0
"""How long an answer may take that does not wait for the read model, in seconds."""
WAIT_S: Final = 3.0
"""How long the gateway waits for a change before it answers, in seconds.

A client notices only after that time that the replica which it has asked is gone.
"""
PAUSE_MAX_S: Final = 1.0
"""The longest pause before a request is sent again, in seconds."""
AGAIN: Final = ("Unavailable", "TooManyRequests")
"""The reasons of a refusal after which a query is sent again."""
GONE: Final = "Unavailable"

Reply = Mapping[str, object]


class Gone(Unreachable):
    """No gateway has replied to a request, which may have arrived nevertheless."""


async def request(session: Session, subject: str, content: bytes, timeout_s: float) -> Reply:
    """Return the reply of the gateway to one request.

    Raises `Gone` without a reply, `Refused` with the reason of a refusal, or `Denied` if the server
    does not let the user send this.
    """
    try:
        message = await session.connection.request(subject, content, timeout=timeout_s)
    except Denied:
        raise
    except (NatsError, OSError, TimeoutError):
        message = None
    if message is None or (message.headers or {}).get("Status") == "503":
        raise Gone(_describe_silence(session))
    try:
        reply = json.loads(message.data)
    except (ValueError, RecursionError):
        reply = None
    if not isinstance(reply, dict):
        address = without_password(session.url)
        raise Unreachable(f"what answers at {address} is no gateway of a control plane")
    if "reason" in reply:
        _refuse(reply)
    return reply


def _describe_silence(session: Session) -> str:
    if not session.connection.is_connected:
        return str(not_responding(session.url))
    return (
        f"no gateway answers {session.org} at {without_password(session.url)}: try again in a"
        " moment, or ask an operator of the platform whether the gateway runs"
    )


def _refuse(reply: Reply) -> NoReturn:
    field, reason, error, fix = (
        str(reply.get(name) or "") for name in ("field", "reason", "error", "fix")
    )
    message = error.removeprefix(f"{field} ") if field else error
    raise Refused(field, reason, f"{message}; {fix}" if fix else message)


class Asker:
    """Asks the gateway on the connection of a session.

    answer_s: how long an answer may take for which the gateway does not wait, in seconds.
    """

    answer_s = ATTEMPT_S

    def __init__(self, session: Session) -> None:
        self._session = session
        self._is_gone = False

    def complete(self, fields: Mapping[str, object]) -> Mapping[str, object]:
        """Return the fields of a query as they are sent; a subclass changes them here."""
        return fields

    async def ask_for_changes(self, fields: Mapping[str, object]) -> Reply:
        """Return the next changes; the query is sent again for as long as no gateway answers."""
        fields = {**fields, "waitSeconds": WAIT_S}
        return await self.ask("Watch", fields, wait_s=WAIT_S, patient=True)

    async def ask(
        self,
        query: str,
        fields: Mapping[str, object],
        *,
        wait_s: float = 0.0,
        patient: bool = False,
    ) -> Reply:
        """Return the answer to a query, which is sent again while no gateway answers.

        wait_s: how long the gateway waits for a change before it answers, in seconds.
        patient: whether to try without limit; otherwise for as long as a reply may take.

        Raises `Refused`, or `Unreachable` after that time.
        """
        session = self._session
        subject = f"{QUERIES}.{token(session.org)}.{query}"
        asked = {name: value for name, value in self.complete(fields).items() if value}
        content = json.dumps(asked).encode()
        most_s = wait_s + PROMPT_S if wait_s else self.answer_s
        clock = asyncio.get_running_loop().time
        ends, failures = clock() + session.timeout_s, 0
        while True:
            left_s = most_s if patient else max(min(most_s, ends - clock()), RETRY_S)
            reply = await self._try(subject, content, left_s)
            if not isinstance(reply, ClientError):
                return reply
            failures += 1
            pause = pause_s(failures, RETRY_S, PAUSE_MAX_S, random.random())
            is_crowded = isinstance(reply, Refused) and reply.reason != GONE
            if clock() + pause >= ends and (is_crowded or not patient):
                raise reply
            await asyncio.sleep(pause)

    async def _try(self, subject: str, content: bytes, timeout_s: float) -> Reply | ClientError:
        """Return the answer, or the error after which the query may be sent again."""
        try:
            reply = await request(self._session, subject, content, timeout_s)
        except Denied as denial:
            raise build_denial(self._session.url, denial.description) from None
        except Gone as error:
            self._note(is_gone=True)
            return error
        except Refused as refusal:
            if refusal.reason not in AGAIN:
                raise
            self._note(is_gone=refusal.reason == GONE)
            return refusal
        self._note(is_gone=False)
        return reply

    def _note(self, *, is_gone: bool) -> None:
        if is_gone != self._is_gone and self._session.connection.is_connected:
            self._is_gone = is_gone
            self._session.note_gateway(is_back=not is_gone)
