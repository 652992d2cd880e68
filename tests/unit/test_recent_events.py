"""The events of many objects, read in one pass and combined for `describe`."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from contracts.samples import sample
from nodepool.cli.description import body, events_part, format_description
from nodepool.cli.event_table import (
    COMBINED,
    SIMILAR_MAX,
    CountedEvent,
    combine_events,
    count_events,
)
from nodepool.client.events import ObjectEvent, object_events
from nodepool.client.recent_events import KEPT, RecentEvents
from nodepool.contract.events import CWNodeAssigned, CWNodePoolCreated, CWNodeRegistered
from nodepool.contract.log import Entry
from nodepool.contract.messages import Envelope, Event
from nodepool.contract.subjects import subject_of

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
POOLS, NODES = ("a", "b"), ("g1", "g2", "g3")
OBJECTS = [*(("NodePool", pool) for pool in POOLS), *(("Node", node) for node in NODES)]


def entry(position: int, event: Event) -> Entry:
    envelope = Envelope(id=str(position), type=type(event).__name__, source="x", data=event)
    time = BEGAN + timedelta(seconds=position)
    return Entry(position, time, subject_of(event, event.speaker), envelope.encode(), {})


def registered(node: str) -> Event:
    return sample(CWNodeRegistered, pool="a", node=node, message=f"Node {node} is registered")


def read(entries: Sequence[Entry], since: datetime = BEGAN) -> RecentEvents:
    events = RecentEvents(dict.fromkeys(OBJECTS, since))
    events.read(entries)
    return events


def shown(entries: Sequence[Entry], kind: str, name: str) -> list[CountedEvent]:
    return combine_events(read(entries).of(kind, name))


def regarding(entries: Sequence[Entry], kind: str, name: str) -> list[ObjectEvent]:
    events = (event for each in entries for event in object_events(each))
    return [event for event in events if (event.kind, event.name) == (kind, name)]


EVENTS = st.one_of(
    st.builds(
        lambda kind, pool, node: sample(kind, pool=pool, node=node),
        st.sampled_from([CWNodeAssigned, CWNodeRegistered]),
        st.sampled_from(POOLS),
        st.sampled_from(NODES),
    ),
    st.builds(lambda pool: sample(CWNodePoolCreated, pool=pool), st.sampled_from(POOLS)),
)


@given(st.lists(EVENTS, max_size=30))
def test_a_few_events_are_those_that_reading_each_object_alone_gives(events: list[Event]) -> None:
    entries = [entry(position, event) for position, event in enumerate(events)]

    for kind, name in OBJECTS:
        own = regarding(entries, kind, name)
        begins = [at for at, event in enumerate(own) if event.reason == "CWNodePoolCreated"]
        alone = count_events(own[begins[-1] if begins else 0 :])
        assert sorted(shown(entries, kind, name), key=str) == sorted(alone, key=str)


def test_events_before_an_object_was_created_are_left_out() -> None:
    entries = [entry(at, registered("g1")) for at in (1, 2, 3)]
    events = RecentEvents({("Node", "g1"): BEGAN + timedelta(seconds=2)})

    events.read(entries)

    assert [event.count for event in combine_events(events.of("Node", "g1"))] == [2]
    assert combine_events(events.of("NodePool", "a")) == []


def test_many_similar_events_are_one_event_and_few_of_them_are_kept() -> None:
    nodes = [f"g{number}" for number in range(3 * KEPT)]
    entries = [entry(at, registered(n)) for at, n in enumerate(nodes)]

    ((group, kept),) = read(entries).of("NodePool", "a")
    (event,) = shown(entries, "NodePool", "a")

    assert (group.count, len(kept)) == (3 * KEPT, KEPT)
    assert event.message == f"{COMBINED}Node g{3 * KEPT - 1} is registered"
    assert (event.count, event.first, event.last) == (3 * KEPT, entries[0].time, entries[-1].time)


def test_an_event_that_is_often_repeated_keeps_its_message() -> None:
    entries = [entry(at, registered("g1")) for at in range(2 * KEPT)]

    (event,) = shown(entries, "NodePool", "a")

    assert (event.message, event.count) == ("Node g1 is registered", 2 * KEPT)


def test_foreign_bytes_regard_no_object() -> None:
    subject = "np.evt.lifecycle.demo.demo.a.CWNodeRegistered"
    contents = [b"", b"[]", b'{"data": 1}', b'{"data": {"node": ["g1"]}}', b"[" * 100_000]
    entries = [Entry(at, BEGAN, subject, content, {}) for at, content in enumerate(contents)]

    assert shown(entries, "Node", "g1") == []
    assert shown(entries, "NodePool", "a") == []


def test_only_the_newest_events_are_shown_and_the_others_are_counted() -> None:
    entries = [entry(at, registered(f"g{at}")) for at in range(SIMILAR_MAX)]
    events = shown(entries, "NodePool", "a")
    document = {"metadata": {"name": "a"}}

    lines = events_part(document, events, BEGAN, name="a", most=2)

    assert [line.rpartition("  ")[2] for line in lines[3:]] == [
        "Node g8 is registered",
        "Node g9 is registered",
        "(8 earlier: use --events N for more, or 'nodepool events --for TYPE/NAME' for all)",
    ]
    whole = [*body(document, name="a"), *events_part(document, events, BEGAN, name="a")]
    assert "\n".join(whole) == format_description(document, events, BEGAN, name="a")
