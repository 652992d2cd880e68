"""What the gateway says of a moment is what it said then."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from bus.accounts import CLUSTER, ORG
from bus.archives import archived_to
from bus.consoles import console_at_work
from bus.guarded_gateway import ask, user
from bus.test_console import apply
from nodepool.contract.cluster_events import event_kinds
from nodepool.contract.documents import items
from nodepool.explanation.values import number
from nodepool.nats.wire.connection import Connection
from support.constants import A100, H100, ZONE

pytest.importorskip("pyarrow", reason="needs the package pyarrow")

WANTED = [{"instanceType": A100, "count": 6}]
SAME = ("log", "first", "atEnd")
NAMES = sorted(event_kinds())[:64]


def position(item: object) -> int:
    """Return where a message is in the log."""
    found = number(item, "position")
    assert found, item
    return found


async def of_ourselves(client: Connection, query: str, **fields: object) -> Mapping[str, object]:
    """The answer to a query of the organisation."""
    return await ask(client, f"np.api.{ORG}.{query}", **fields)


async def test_zones_and_messages_of_a_moment_are_those_that_were_shown_then(
    tmp_path: Path,
) -> None:
    async with (
        console_at_work(tmp_path, archives=True) as world,
        user(world.server, "viewer") as viewer,
    ):
        # given what a user was told of free machines and of the log
        await apply(world.operator, "train", H100, 2)
        await world.operator.nodepools.wait("train", "AtTarget")
        free = await of_ourselves(viewer, "FindCapacity", selections=WANTED)
        then = int(str(free["position"]))
        all_then = {"cluster": CLUSTER, "names": NAMES, "limit": 1_000}
        pages = [
            (all_then, await of_ourselves(viewer, "Messages", **all_then)),
            (few := {**all_then, "limit": 3}, await of_ourselves(viewer, "Messages", **few)),
            (
                last := {"cluster": CLUSTER, "names": ["NodePoolValidated"], "last": True},
                await of_ourselves(viewer, "Messages", **last),
            ),
        ]

        # when machines are taken and more happens
        await world.operator.capacity.reclaim(ZONE, A100, 6)
        await world.operator.nodepools.scale("train", 3)
        await world.operator.nodepools.wait("train", "AtTarget")
        now = await of_ourselves(viewer, "FindCapacity", selections=WANTED)
        assert now["zones"] != free["zones"]
        await archived_to(tmp_path / "archive", await world.operator.events.newest_position())

        # then the moment is answered as it was
        found = await of_ourselves(viewer, "FindCapacity", selections=WANTED, at=then)
        assert found == free
        for asked, shown in pages:
            past = await of_ourselves(viewer, "Messages", at=then, **asked)
            known = [each for each in items(shown, "items") if position(each) <= then]
            assert [*map(position, items(past, "items"))] == [*map(position, known)]
            assert items(past, "items") == known
            assert {name: past[name] for name in SAME} == {name: shown[name] for name in SAME}
            assert past["position"] == then
        # and without a moment it is as it is now
        assert (
            found["zones"]
            != (await of_ourselves(viewer, "FindCapacity", selections=WANTED, at=None))["zones"]
        )
        # and the same is refused
        twice = await of_ourselves(viewer, "FindCapacity", selections=WANTED * 2, at=then)
        assert twice == await of_ourselves(viewer, "FindCapacity", selections=WANTED * 2)
        unknown = await of_ourselves(viewer, "Messages", cluster=CLUSTER, names=["No"], at=then)
        assert unknown == await of_ourselves(viewer, "Messages", cluster=CLUSTER, names=["No"])
