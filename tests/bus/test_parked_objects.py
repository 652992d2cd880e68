"""Objects that cannot be stored, on a real server: each is parked, and delays no other."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from bus.harness import connected, read_all, until
from nodepool.contract.events import MachineRepaired
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.publisher import Bus, Publisher
from nodepool.nats.log.streams import provision, streams
from nodepool.nats.objects.parking import Parking
from nodepool.nats.objects.read_model import ReadModelWriter
from nodepool.nats.objects.stored_objects import ObjectKey
from nodepool.nats.wire.connection import Connection
from nodepool.service import Object, Projection

MEGABYTE = 1 << 20
POOLS = "nodepools"


class Thing(NamedTuple):
    """An object of a version, whose document has so many bytes or cannot be made."""

    version: int
    size: int = 1
    broken: bool = False


State = dict[str, Thing]
"""Objects of one bucket by key."""


def render(item: Object) -> Mapping[str, object]:
    assert isinstance(item, Thing)
    if item.broken:
        raise LookupError("no such field")
    return {"version": item.version, "text": "x" * item.size}


def touched(state: State, _message: MachineRepaired) -> Iterable[ObjectKey]:
    return ((POOLS, key) for key in state)


PROJECTION: Projection[State, MachineRepaired] = Projection(
    buckets=(POOLS,),
    touched=touched,
    get=lambda state, _bucket, key: state.get(key),
    keys=lambda state, _bucket: state,
    render=render,
)
EVENT = MachineRepaired(zone="z", machine="m")


@dataclass
class Writing:
    """A writer at work; `parked` are the keys of the objects it could not store, in order."""

    connection: Connection
    writer: ReadModelWriter[State, MachineRepaired]
    parked: list[str] = field(default_factory=list)
    position: int = 0

    def update(self, state: State) -> None:
        """The state is other than it was."""
        self.position += 1
        self.writer.update(state, [EVENT], self.position)

    async def stored(self) -> dict[str, int]:
        """The version of every object that is stored, by key."""
        prefix = f"$KV.{POOLS}."
        return {
            entry.subject.removeprefix(prefix): json.loads(entry.content)["version"]
            for entry in await read_all(self.connection, f"KV_{POOLS}")
            if entry.content
        }

    async def until_stored(self, **versions: int) -> None:
        """Returns once exactly these objects are stored, in these versions."""

        async def are_stored() -> bool:
            return await self.stored() == versions

        await until(are_stored)

    async def causes(self) -> list[str]:
        """The cause of every dead letter."""
        entries = await read_all(self.connection)
        return [
            json.loads(entry.content)["cause"]
            for entry in entries
            if entry.subject == "np.dead.test"
        ]


@asynccontextmanager
async def writing(
    server: NatsServer, rendering: Projection[State, MachineRepaired] = PROJECTION
) -> AsyncIterator[Writing]:
    """A writer with nothing to write yet."""
    async with connected(server.url) as connection:
        publisher = Publisher(connection)
        await publisher.open()
        parked: list[str] = []
        parking = Parking("test", publisher, lambda key, _cause: parked.append(key[1]))
        bus = Bus(connection, publisher, await provision(connection))
        writer = ReadModelWriter(bus, rendering, parking, lambda _cause, _count: None)
        task = asyncio.create_task(writer.run())
        try:
            yield Writing(connection, writer, parked)
        finally:
            task.cancel()


async def test_objects_that_cannot_be_stored_are_parked_and_the_others_are_written(
    server: NatsServer,
) -> None:
    async with writing(server) as w:
        # given objects of which some have no proper key, are too large, or cannot be made
        state = {
            "good": Thing(1),
            "a b": Thing(1),
            "a..b": Thing(1),
            "large": Thing(1, size=2 * MEGABYTE),
            "broken": Thing(1, broken=True),
            "other": Thing(1),
        }

        # when they are written
        w.update(state)

        # then the others are stored, and each of these is parked once, with the reason
        await w.until_stored(good=1, other=1)
        await until(lambda: len(w.writer.unwritten) == 0)
        assert w.parked == ["a b", "a..b", "large", "broken"]
        assert await w.causes() == [
            "'a b' is no key: letters, digits, '-', '_', '=' and single dots are stored",
            "'a..b' is no key: letters, digits, '-', '_', '=' and single dots are stored",
            f"the object has {2 * MEGABYTE + 23} bytes; at most {MEGABYTE - 512} are stored",
            "LookupError: no such field",
        ]

        # and they are not parked again while they stay as they are
        w.writer.invalidate()
        w.update({**state, "good": Thing(2)})
        await w.until_stored(good=2, other=1)
        assert len(w.parked) == 4


async def test_a_parked_object_is_tried_again_when_it_changes(server: NatsServer) -> None:
    async with writing(server) as w:
        # given an object that is too large
        w.update({"large": Thing(1, size=2 * MEGABYTE)})
        await until(lambda: w.parked == ["large"])

        # when it becomes smaller
        w.update({"large": Thing(2)})

        # then it is stored
        await w.until_stored(large=2)
        assert w.parked == ["large"]


async def test_an_object_that_the_server_refuses_is_parked(server: NatsServer) -> None:
    async with writing(server) as w:
        # given a bucket that takes small objects only
        config = {**streams()[f"KV_{POOLS}"], "max_msg_size": 10_000}
        await api.request(w.connection, f"$JS.API.STREAM.UPDATE.KV_{POOLS}", config)

        # when a larger one is written among others
        w.update({"good": Thing(1), "large": Thing(1, size=20_000), "other": Thing(1)})

        # then it is parked, and the others are stored
        await w.until_stored(good=1, other=1)
        await until(lambda: w.parked == ["large"])
        (cause,) = await w.causes()
        assert cause.startswith("the server refuses: message size exceeds maximum allowed")
        await provision(w.connection)


async def test_a_writer_with_parked_objects_only_rests(server: NatsServer) -> None:
    async with writing(server) as w:
        # given a writer that has parked an object
        w.update({"a b": Thing(1)})
        await until(lambda: w.parked == ["a b"])

        # when the next object is written, and all requests are counted until it is stored
        requests: list[str] = []
        async with connected(server.url) as observer:

            async def note(message: object) -> None:
                requests.append(str(getattr(message, "subject", "")))

            await observer.subscribe("$JS.API.CONSUMER.CREATE.KV_nodepools.>", cb=note)
            await observer.flush()
            w.update({"a b": Thing(1), "good": Thing(2)})
            await until(lambda: len(w.writer.unwritten) == 0)
            await observer.flush()

        # then no bucket was read again
        assert requests == []
        await w.until_stored(good=2)


async def test_what_no_object_can_be_stored_for_is_tried_again_ever_more_rarely(
    server: NatsServer,
) -> None:
    async with writing(server) as w:
        # given a bucket that is full
        config = {**streams()[f"KV_{POOLS}"], "max_bytes": 1}
        await api.request(w.connection, f"$JS.API.STREAM.UPDATE.KV_{POOLS}", config)
        attempts: list[float] = []

        async def note(_message: object) -> None:
            attempts.append(asyncio.get_running_loop().time())

        await w.connection.subscribe(f"$KV.{POOLS}.>", cb=note)

        # when an object is to be written
        w.update({"good": Thing(1)})
        await until(lambda: len(attempts) >= 4)

        # then the pauses between the attempts grow, and nothing is parked
        pauses = [after - before for before, after in pairwise(attempts)]
        least = (0.1, 0.2, 0.4)
        assert all(pause >= least for pause, least in zip(pauses, least, strict=False))
        assert w.parked == []

        # and it is stored as soon as there is room
        await provision(w.connection)
        await w.until_stored(good=1)


async def test_objects_are_written_again_where_they_are_rendered_otherwise(
    server: NatsServer,
) -> None:
    # given an object that is stored
    state = {"good": Thing(1)}
    async with writing(server) as w:
        w.update(state)
        await w.until_stored(good=1)
    # when a writer starts that renders the same version otherwise
    otherwise = Projection(
        buckets=PROJECTION.buckets,
        touched=PROJECTION.touched,
        get=PROJECTION.get,
        keys=PROJECTION.keys,
        render=lambda item: {"version": 7 * item.version},
        rendering="other",
    )
    async with writing(server, otherwise) as w:
        w.update(state)

        # then the object is written as this one renders it
        await w.until_stored(good=7)

    # and it is as before once that is not wanted any more
    async with writing(server) as w:
        w.update(state)
        await w.until_stored(good=1)
