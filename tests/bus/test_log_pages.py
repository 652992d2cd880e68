"""Pages of the events of one cluster, read from a real log without a consumer."""

import pytest

from bus.harness import connected
from nodepool.contract.cluster_events import event_kinds, subjects_of_events
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.pages import newest_of, read_page
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.connection import Connection

FEW = ("CWNodeAssigned", "CWNodeDeleted", "NodePoolValidated")
MANY = (*FEW, "QuotaChecked", "CapacityChecked")
OF_ALL = (*MANY, "CommandAccepted")
"""Also an event that every service says."""
OTHERS = ("NodeUpdated", "NodeReported")
"""Events that nobody asks for: one of a service that says others, and one of an agent."""


async def say(connection: Connection, name: str, cluster: str = "prod") -> int:
    """Stores an event of this name about a NodePool of a cluster; its position."""
    speaker = event_kinds()[name].speaker.replace("*", "validator")
    return await api.publish(connection, f"np.evt.{speaker}.acme.{cluster}.train.{name}", b"{}")


@pytest.mark.parametrize("names", [FEW, MANY, OF_ALL], ids=["few", "many", "of all services"])
async def test_the_pages_of_a_cluster_have_each_of_its_events_once_in_the_order_of_the_log(
    server: NatsServer, names: tuple[str, ...]
) -> None:
    async with connected(server.url) as connection:
        # given events of a cluster between those of others
        said = []
        for name in (*names, *reversed(names), *names):
            said.append((await say(connection, name), name))
            await say(connection, name, cluster="test")
            for other in OTHERS:
                await say(connection, other)

        # when they are read page by page
        subjects = subjects_of_events(names, "acme", "prod")
        read, sizes, after, at_end = list[tuple[int, str]](), list[int](), 0, False
        while not at_end:
            page = await read_page(connection, subjects, names, after=after, limit=4, size=10_000)
            read += [(each.position, each.subject.rpartition(".")[2]) for each in page.entries]
            sizes.append(len(page.entries))
            after, at_end = page.after, page.at_end

        # then each is there once, and no page is longer than asked for
        assert read == said
        assert max(sizes) <= 4
        assert after == page.end == await api.last_position(connection, STREAM)


async def test_the_newest_events_are_those_of_each_name_that_there_is(server: NatsServer) -> None:
    async with connected(server.url) as connection:
        await say(connection, "CWNodeAssigned")
        newest = [await say(connection, "CWNodeDeleted"), await say(connection, "CWNodeAssigned")]
        await say(connection, "CWNodeAssigned", cluster="test")

        page = await newest_of(connection, subjects_of_events(FEW, "acme", "prod", "train"))

    assert [each.position for each in page.entries] == newest
