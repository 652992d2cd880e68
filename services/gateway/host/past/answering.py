"""Answers queries about the past, from moments that the child process rebuilds."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from json import dumps
from typing import Final, TypeGuard

from gateway.answers import answer_explain, answer_get, answer_list
from gateway.host.audit import find_unnamed
from gateway.host.history import find_unknown, find_wildcard
from gateway.host.intake import Reply
from gateway.host.past.child import Child, ChildGone, Faulted
from gateway.host.past.frames import Kept
from gateway.host.past.moments import BYTES_MAX, Moment, Moments, Rebuilt
from gateway.host.settings import GatewaySettings
from gateway.host.waiting import FairPlaces
from gateway.refusals import Refusal
from nodepool.contract import queries
from nodepool.contract.queries import (
    Audit,
    Events,
    Explain,
    FindCapacity,
    Get,
    List,
    Messages,
    Query,
)
from nodepool.host.logs import Logger

WAITING_MAX: Final = 8
"""How many queries of an organisation wait for the child process; a further one is refused."""
WAIT_S: Final = 15.0
"""How long a query waits for the child process, in seconds."""
SPARE_S: Final = 2.0
"""How much longer than the child itself the gateway waits for a job to end, in seconds."""
JOB_COST: Final = 50.0
"""What a job of the child process counts against the rate of queries, besides the query."""
AHEAD: Final = timedelta(seconds=5)
"""How far the clock of a user may go ahead."""
PACKAGE: Final = "pyarrow"
OFF: Final = "the gateway shows no past"
AGAIN: Final = "ask again in a moment"
Charge = Callable[[float], Refusal | None]
PastQuery = Get | List | Explain | Events | Messages | Audit | FindCapacity | queries.Moment


class Past:
    """Answers queries about the past; at most one job is done at a time.

    child: the process that does them.
    """

    def __init__(self, settings: GatewaySettings, log: Logger) -> None:
        self._log = log
        self.child = Child(settings.service, settings.archive)
        self._places = FairPlaces(1, WAITING_MAX)
        self._moments = Moments()
        self._off = _find_obstacle(settings.archive)

    async def close(self) -> None:
        """End the child process."""
        await self.child.close()

    async def answer(self, query: PastQuery, org: str, content: bytes, charge: Charge) -> Reply:
        """Return the answer to a query about a moment for an organisation.

        content: the query as it came. charge: counts against the rate of the organisation.
        """
        if self._off is not None:
            return self._off
        if refusal := _find_fault(query):
            return refusal
        reply = self._answer_known(query, org)
        if reply is not None:
            return reply
        if refusal := charge(JOB_COST):
            return refusal
        try:
            return await self._wait_and_work(query, org, content)
        except Faulted as fault:
            return self._refuse(fault)
        except ChildGone:
            self._log.warning("moment not rebuilt", org=org, at=str(query.at))
            return self._refuse_large()

    async def _wait_and_work(self, query: PastQuery, org: str, content: bytes) -> Reply:
        """Answer once it is the turn of the organisation; raise Faulted or ChildGone."""
        has_begun = False
        try:
            async with asyncio.timeout(WAIT_S) as limit, self._places.place(org) as has_place:
                if not has_place:
                    error = f"{WAITING_MAX} queries of {org} wait for a moment of the past"
                    return Refusal("TooManyRequests", error, "wait for their answers first")
                # Another query may have had the moment rebuilt meanwhile.
                reply = self._answer_known(query, org)
                if reply is not None:
                    return reply
                limit.reschedule(
                    asyncio.get_running_loop().time() + self.child.limits.job_s + SPARE_S
                )
                has_begun = True
                return await self._work(query, org, content)
        except TimeoutError:
            if has_begun:
                raise ChildGone from None
            return Refusal("TooManyRequests", "other moments are being rebuilt", AGAIN)

    def _answer_known(self, query: PastQuery, org: str) -> Reply | None:
        """Return the answer from what is kept; None if the child process has to look."""
        assert query.at is not None
        moment = self._moments.find(query.at)
        if moment is None:
            return None
        if isinstance(query, queries.Moment):
            return _show(moment)
        rebuilt = self._moments.get(org, moment.position)
        if rebuilt is None or not isinstance(query, Get | List | Explain):
            return None
        return _answer_from(rebuilt, query, org, moment)

    async def _work(self, query: PastQuery, org: str, content: bytes) -> Reply:
        assert query.at is not None
        at = query.at if isinstance(query.at, int) else query.at.isoformat()
        name = type(query).__name__
        job = {"org": org, "at": at, "name": name, "query": content.decode()}
        async with aclosing(self.child.do(job)) as frames:
            moment = Moment.of(await anext(frames))
            self._moments.note(query.at, moment)
            if isinstance(query, Get | List | Explain):
                return await self._rebuild(frames, query, org, moment)
            reply = _show(moment)
            async for frame in frames:
                reply = frame
            return reply

    async def _rebuild(
        self,
        frames: AsyncGenerator[bytes, None],
        query: Get | List | Explain,
        org: str,
        moment: Moment,
    ) -> Reply:
        rebuilt = Rebuilt()
        rebuilt.begin(moment.position)
        async for frame in frames:
            rebuilt.take(Kept.of(frame), moment.time)
            if rebuilt.bytes > BYTES_MAX:
                error = f"the moment has more than {BYTES_MAX >> 20} MiB of objects"
                return _refuse_moment(error)
        self._moments.put(org, moment.position, rebuilt)
        return _answer_from(rebuilt, query, org, moment)

    def _refuse_large(self) -> Refusal:
        return _refuse_moment(
            f"the moment cannot be rebuilt: it takes more than {self.child.limits}"
        )

    def _refuse(self, fault: Faulted) -> Refusal:
        """Return the refusal for a fault; what concerns the platform alone is in the log."""
        if fault.kind == "moment":
            return _refuse_moment(str(fault))
        self._log.warning("past not read", kind=fault.kind, cause=str(fault))
        if fault.kind == "unreachable":
            return Refusal("Unavailable", "the archive or the log does not answer", AGAIN)
        if fault.kind == "memory":
            return self._refuse_large()
        return _refuse_moment("the archive cannot be read", "tell the operator of the platform")


def _find_obstacle(archive: str) -> Refusal | None:
    """Return why no past is shown at all; None if it can be."""
    if not archive:
        fix = "ask the operator of the platform to set NODEPOOL_ARCHIVE for the gateway"
        return Refusal("Forbidden", f"{OFF}: it has no archive", fix)
    if find_spec(PACKAGE) is None:
        fix = "ask the operator of the platform for pip install 'nodepool[archive]' there"
        return Refusal("Forbidden", f"{OFF}: it has no package {PACKAGE}", fix)
    return None


def _find_fault(query: PastQuery) -> Refusal | None:
    if isinstance(query.at, datetime) and query.at > datetime.now(UTC) + AHEAD:
        return _refuse_moment(f"{query.at.isoformat()} is in the future")
    match query:
        case Events():
            return find_wildcard(query)
        case Messages():
            return find_wildcard(query) or find_unknown(query)
        case Audit():
            return find_wildcard(query) or find_unnamed(query)
    return None


def _answer_from(rebuilt: Rebuilt, query: Get | List | Explain, org: str, moment: Moment) -> Reply:
    """Return the answer that the same functions give for the present."""
    model, position = rebuilt.model, moment.position
    match query:
        case Get():
            return answer_get(model, org, query, position)
        case List():
            return answer_list(model, org, query, position)
    return answer_explain(model, org, query, position, moment.time, rebuilt.peers)


def _show(moment: Moment) -> bytes:
    return dumps({"position": moment.position, "time": moment.time.isoformat()}).encode()


def _refuse_moment(error: str, fix: str = "") -> Refusal:
    return Refusal("Invalid", error, fix, "at")


def is_past(query: Query) -> TypeGuard[PastQuery]:
    """Return whether a query is about a moment of the past."""
    return getattr(query, "at", None) is not None
