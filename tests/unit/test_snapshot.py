import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum, StrEnum
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from nodepool.contract.model import Taint
from nodepool.engine.snapshot import Json, decoder, dump, encode, load
from support.services import NAMES, services
from support.world_harness import WorldHarness

NOON = datetime(2026, 1, 1, 12, 0, 0, 1, tzinfo=UTC)
LEAF = "ib.coreweave.cloud/leafgroup"
RACK = {LEAF: "l-7"}
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": LEAF, "operator": "In", "values": ["l-7"]}]}
            ]
        }
    }
}


def busy_world() -> WorldHarness:
    """A house in which something of every kind is on its way."""
    world = WorldHarness()
    world.given_data_center(machines=6, quota=20)
    world.given_machines(2, labels=RACK)
    world.given_machines(2, boot_s=600)
    world.apply("serve", 3, nodeLabels={"team": "ml"}, affinity=AFFINITY)
    world.apply(
        "spot",
        4,
        computeClass="spot",
        schedulingPriority={"value": -5},
        nodeTaints=[{"key": "a", "value": "b", "effect": "NoSchedule"}],
        metadata={"labels": {"app": "x"}, "annotations": {"note": "y"}},
    )
    world.apply("greedy", 30)
    world.apply("wrong", 3, instance_type="none-such")
    world.apply("dying", 2, lifecycle={"scaleDownStrategy": "PreferIdle"})
    world.run_pod("n1", interruption="graceful", graceS=600)
    world.run_pod("n2")
    world.break_machines("n9", fault="silence", times=3, cause="no link")
    world.preempt("spot", "n1")
    world.scale("serve", 1)
    world.delete("dying")
    world.apply("slow", 2)
    return world


# Every service's state comes back as it was.


@pytest.mark.parametrize("name", NAMES)
def test_the_state_of_a_busy_service_comes_back_as_it_was(name: str) -> None:
    state = busy_world().world.state(name)

    again = load(type(state), dump(state))

    assert again == state
    assert list(dump(again)) == list(dump(state))


@pytest.mark.parametrize("name", NAMES)
def test_an_initial_state_comes_back_as_it_was(name: str) -> None:
    (service,) = services(name)

    assert load(type(service.initial), dump(service.initial)) == service.initial


def test_a_busy_world_has_something_in_every_field_of_every_state() -> None:
    world = busy_world().world

    empty = {
        (service.name, field)
        for service in world.services
        for field, value in vars_of(world.state(service.name)).items()
        if value == vars_of(service.initial)[field]
    }

    assert empty <= {
        ("quota", "again"),
        ("quota", "looking"),
        ("capacity", "again"),
        ("capacity", "looking"),
        ("allocator", "again"),
        ("allocator", "looking"),
        ("lifecycle", "stale"),
        ("lifecycle", "told"),
    }, "these are empty in a world at rest; everything else is to be proved with content"


def vars_of(state: object) -> dict[str, object]:
    """The fields of a state."""
    return {name: getattr(state, name) for name in getattr(state, "__dataclass_fields__", ())}


def test_a_state_written_while_work_waits_comes_back_as_it_was() -> None:
    stage = WorldHarness()
    stage.given_data_center(machines=4, quota=2)
    stage.apply("first", 4)
    with stage.sent_together():
        stage.apply("first", 2, nodeLabels={"team": "new"})
        stage.given_quota(8)
        for _ in range(12):
            for host in stage.world.hosts:
                stage.world.read(host, most=1)
                stage.world.process(host)
                state = host.replica.state
                assert load(type(state), dump(state)) == state


# Equal states make equal bytes.


@dataclass(frozen=True, slots=True)
class Inner:
    """A record inside a state."""

    name: str
    since: datetime | None = None


class Level(IntEnum):
    """Numbers with names."""

    LOW = 1
    HIGH = 2


class Colour(StrEnum):
    """Texts with names."""

    RED = "red"


@dataclass(frozen=True, slots=True)
class State:
    """A state with everything that a state may hold."""

    records: Map[str, Inner] = Map()
    nested: Map[str, Map[int, bool]] = Map()
    labels: Mapping[str, str] = Map()
    pair: tuple[str, int] = ("", 0)
    many: tuple[Inner, ...] = ()
    taints: tuple[Taint, ...] = ()
    level: Level = Level.LOW
    colour: Colour | None = None
    word: Literal["", "yes"] = ""
    due: datetime = NOON
    ratio: float = 0.5
    count: int | None = None
    done: bool = False


FULL = State(
    records=Map({"b": Inner("b", NOON), "a": Inner("a")}),
    nested=Map({"x": Map({2: True, 1: False}), "y": Map()}),
    labels={"z": "1", "a": "2"},
    pair=("left", -1),
    many=(Inner("m"), Inner("n", NOON)),
    taints=(Taint(key="k", effect="NoSchedule"), Taint(key="k", value="v", effect="NoExecute")),
    level=Level.HIGH,
    colour=Colour.RED,
    word="yes",
    ratio=1e-9,
    count=0,
    done=True,
)


def test_a_state_is_a_line_for_each_field_and_for_each_entry_of_a_map() -> None:
    assert list(dump(FULL)) == [
        b'["records","a",["a",null]]',
        b'["records","b",["b","2026-01-01T12:00:00.000001+00:00"]]',
        b'["nested","x",[[1,false],[2,true]]]',
        b'["nested","y",[]]',
        b'["labels",{"a":"2","z":"1"}]',
        b'["pair",["left",-1]]',
        b'["many",[["m",null],["n","2026-01-01T12:00:00.000001+00:00"]]]',
        b'["taints",[{"effect":"NoSchedule","key":"k"},'
        b'{"effect":"NoExecute","key":"k","value":"v"}]]',
        b'["level",2]',
        b'["colour","red"]',
        b'["word","yes"]',
        b'["due","2026-01-01T12:00:00.000001+00:00"]',
        b'["ratio",1e-09]',
        b'["count",0]',
        b'["done",true]',
    ]


def test_everything_that_a_state_may_hold_comes_back_with_its_type() -> None:
    again = load(State, dump(FULL))

    assert again == FULL
    assert [type(value) for value in vars_of(again).values()] == [
        type(value) for value in vars_of(FULL).values()
    ]


@given(st.dictionaries(st.text(max_size=3), st.text(max_size=3)), st.randoms())
def test_the_bytes_do_not_tell_in_which_order_entries_came(
    found: dict[str, str], chance: random.Random
) -> None:
    entries = list(found.items())
    chance.shuffle(entries)
    straight, shuffled = Map[str, Inner](), Map[str, Inner]()

    for key, value in found.items():
        straight = straight.set(key, Inner(value))
    for key, value in entries:
        shuffled = shuffled.set(key, Inner("passing")).set(key, Inner(value))

    first = State(records=straight, labels=found)
    second = State(records=shuffled, labels=dict(entries))
    assert list(dump(first)) == list(dump(second))
    assert load(State, dump(second)) == first


def test_a_moment_of_another_zone_comes_back_as_the_same_moment() -> None:
    berlin = replace(FULL, due=NOON.astimezone(timezone(timedelta(hours=1))))

    assert load(State, dump(berlin)) == FULL


# What is of another shape is told, so that whoever asked begins anew.


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b'["later",1]', id="a field of another release"),
        pytest.param(b'["records","a",["a"]]', id="a record with fewer fields"),
        pytest.param(b'["records","a",["a",null,1]]', id="a record with more fields"),
        pytest.param(b'["records","a",{"name":"a"}]', id="a record of another form"),
        pytest.param(b'["nested","x",[[1]]]', id="an entry without a value"),
        pytest.param(b'["pair",["left"]]', id="half a pair"),
        pytest.param(b'["many",5]', id="a number for a list"),
        pytest.param(b'["taints",[{"key":"k"}]]', id="a value that its model refuses"),
        pytest.param(b'["level",3]', id="a number without a name"),
        pytest.param(b'["colour","blue"]', id="a text without a name"),
        pytest.param(b'["word","no"]', id="a word of another list"),
        pytest.param(b'["due","yesterday"]', id="no moment"),
        pytest.param(b"[", id="no JSON"),
    ],
)
def test_lines_of_another_shape_are_refused(line: bytes) -> None:
    name = line.split(b'"')[1] if b'"' in line else b""
    lines = [known for known in dump(FULL) if not known.startswith(b'["' + name + b'"')]

    with pytest.raises(ValueError, match=r".+"):
        load(State, [*lines, line])


def test_a_state_that_lacks_fields_names_them() -> None:
    lines = [line for line in dump(FULL) if not line.startswith((b'["due"', b'["count"'))]

    with pytest.raises(ValueError, match="State lacks count, due"):
        load(State, lines)


def test_a_state_cannot_hold_what_is_no_value() -> None:
    with pytest.raises(TypeError, match="a state cannot hold set"):
        encode({1, 2})
    with pytest.raises(AssertionError, match="a state cannot hold"):
        decoder("a text")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=10,
    )
)
def test_plain_json_encodes_as_itself(value: Json) -> None:
    assert encode(value) == value
