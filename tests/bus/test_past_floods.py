"""Rebuilding the past in a gateway: it delays nobody, and ends within its bounds."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bus.accounts import ORG, OTHER_ORG, Guarded, guarded_server
from bus.archives import archived_to, archiving, end_of
from bus.guarded_gateway import MANIFEST, ask, at_work, user
from bus.harness import until
from gateway.host.past.answering import WAITING_MAX
from gateway.host.past.frames import Limits
from gateway.main import Gateway
from nodepool.auth.accounts import ARCHIVER, OPERATOR
from nodepool.client import Client
from nodepool.nats.wire.connection import Connection
from support.constants import ZONE

LIST = f"np.api.{ORG}.List"
LIST_OF_OTHER = f"np.api.{OTHER_ORG}.List"


# Any: the fields of GatewaySettings, each of another type.
@asynccontextmanager
async def past_at_work(folder: Path, **settings: Any) -> AsyncIterator[tuple[Guarded, Gateway]]:
    """A gateway with an archive in which a NodePool of one organisation is."""
    archive = folder / "archive"
    with guarded_server(folder) as server:
        await server.until_ready()
        await server.provision()
        log, access = folder / "archiver.log", server.access(ARCHIVER)
        services = ("validator", "aggregator")
        async with (
            at_work(server, folder, *services, archive=str(archive), **settings) as gateway,
            archiving(server, archive, log, access),
            Client(server.url, org=ORG, cluster="prod", access=server.access(OPERATOR)) as operator,
        ):
            await operator.clusters.register("prod", ZONE)
            await operator.nodepools.apply(MANIFEST)
            await archived_to(archive, await operator.events.newest_position())
            yield server, gateway


async def test_a_flood_of_questions_about_the_past_delays_no_other_organisation(
    tmp_path: Path,
) -> None:
    async with (
        past_at_work(tmp_path) as (server, _),
        user(server, "owner") as flooding,
        user(server, "other-owner") as other,
    ):
        end = end_of(tmp_path / "archive")
        # given an organisation that asks for many moments at the same time
        moments = [1 + number % end for number in range(WAITING_MAX * 3)]
        flood = [asyncio.create_task(at(flooding, position)) for position in moments]
        passed = list[int]()
        in_turn = asyncio.create_task(ask(other, LIST_OF_OTHER, kind="clusters", at=1))

        # when another one asks about the present, then no answer waits for those moments
        while not all(each.done() for each in flood):
            before = count_shown(flood)
            answer = await ask(other, LIST_OF_OTHER, kind="nodepools")
            assert answer["items"] == []
            passed.append(count_shown(flood) - before)
            await asyncio.wait(flood, timeout=0.01)
        assert len(passed) > WAITING_MAX
        assert max(passed) < WAITING_MAX // 2

        # and about the past when it is its turn
        assert (await in_turn)["position"] == 1
        # and what was too much is refused
        answers = [each.result() for each in flood]
        refused = [each for each in answers if each.get("reason") == "TooManyRequests"]
        shown = [each for each in answers if "items" in each]
        assert len(shown) + len(refused) == len(flood)
        assert refused
        assert shown
        # and what is known is shown again without being rebuilt
        position = shown[0]["position"]
        assert await at(flooding, int(str(position))) == shown[0]


def count_shown(flood: Sequence[asyncio.Task[dict[str, object]]]) -> int:
    """How many questions have been answered, and not refused."""
    return sum("items" in each.result() for each in flood if each.done())


async def at(client: Connection, position: int) -> dict[str, object]:
    """The NodePools at a position."""
    reply = await client.request(
        LIST, json.dumps({"kind": "nodepools", "at": position}).encode(), timeout=60
    )
    answer: dict[str, object] = json.loads(reply.data)
    return answer


async def test_a_moment_that_takes_too_much_is_refused_and_the_next_is_shown(
    tmp_path: Path,
) -> None:
    async with past_at_work(tmp_path) as (server, gateway), user(server, "owner") as client:
        end, child = end_of(tmp_path / "archive"), gateway.past.child

        # given a process that may take less memory than it needs, then the moment is refused
        child.limits = Limits(memory_bytes=16 << 20)
        refused = await at(client, end)
        assert (refused["reason"], refused["field"]) == ("Invalid", "at")
        assert "it takes more than 20 s or 16 MiB" in str(refused["error"])
        child.kill()

        # and so it is where it takes too long
        child.limits = Limits(job_s=1)
        identity = tmp_path / "archive" / "log.json"
        content = identity.read_bytes()
        hang(identity)
        refused = await at(client, end)
        assert "it takes more than 1 s or 1024 MiB" in str(refused["error"])

        # and where the process is killed
        child.limits = Limits()
        asked = asyncio.create_task(at(client, end))
        await until(lambda: child.pid is not None)
        child.kill()
        assert "cannot be rebuilt" in str((await asked)["error"])

        # when nothing is in the way any more, then the moment is shown
        identity.unlink()
        identity.write_bytes(content)
        assert len((await at(client, end))["items"]) == 1  # type: ignore[arg-type]


def hang(path: Path) -> None:
    """Have a file never end."""
    path.unlink()
    os.mkfifo(path)


async def test_moments_count_against_the_budget_of_queries(tmp_path: Path) -> None:
    budget = {"queries_per_second": 1, "queries_burst": 55}
    async with past_at_work(tmp_path, **budget) as (server, _), user(server, "owner") as client:
        # given a budget of queries that is enough for one moment
        assert "items" in await at(client, 1)

        # when the same moment is asked for again, then it is kept
        assert "items" in await at(client, 1)
        # but another one is refused with what the budget is
        refused = await at(client, 2)
        assert refused["reason"] == "TooManyRequests"
        assert "QUERIES_PER_SECOND" in str(refused)
