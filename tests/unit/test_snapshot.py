import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum, StrEnum
from functools import cache
from typing import Generic, Literal, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from nodepool.contract.model import Taint
from nodepool.contract.outcomes import build_acceptance
from nodepool.engine.codec import Json, decoder, encode
from nodepool.engine.folded import Folded
from nodepool.engine.snapshot import count_lines, dump, dump_changes, load
from nodepool.engine.world import Log, World
from nodepool.state.receipts import Receipt, Receipts
from nodepool.state.work import WithWork
from support import sample_service
from support.constants import A100, L40
from support.paths import cluster_path, zone_path
from support.services import NAMES, services
from support.world_harness import WorldHarness

S = TypeVar("S")
NOON = datetime(2026, 1, 1, 12, 0, 0, 1, tzinfo=UTC)
LEAF = "ib.coreweave.cloud/leafgroup"
RACK = {LEAF: "l-7"}
GB200, EAST = "gb200-4x", "US-EAST-01A"
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": LEAF, "operator": "In", "values": ["l-7"]}]}
            ]
        }
    }
}


@cache
def busy_world() -> WorldHarness:
    """Return a control plane in which something of every kind is on its way; no test changes it."""
    world = WorldHarness()
    world.given_data_center(machines=6, quota=20)
    world.given_machines(2, labels=RACK)
    world.given_machines(2, boot_s=600)
    world.apply(
        "serve",
        3,
        nodeLabels={"team": "ml"},
        nodeAnnotations={"notes": "x" * 5_000},
        affinity=AFFINITY,
    )
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
    world.apply("lapsed", 30)
    world.apply("lapsed", 30, region="US-WEST-04A")
    world.apply("dying", 2, lifecycle={"scaleDownStrategy": "PreferIdle"})
    world.run_pod("n1", interruption="graceful", graceS=600)
    world.run_pod("n2")
    world.break_machines("n9", fault="silence", times=3, cause="no link")
    world.break_machines("n2", fault="disk")
    world.preempt("spot", "n1")
    world.scale("serve", 1)
    world.delete("dying")
    world.apply("slow", 2)
    world.command_node("CordonNode", "spot", "n1")
    world.apply("short", 6)
    world.given_quota(1, A100)
    world.given_machines(1, A100)
    world.apply("gone", 1, A100, computeClass="spot")
    world.preempt("gone", *world.nodes("gone"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("preemption.decide._report_deletion", None)
        world.pass_time(minutes=2)
        patch.setattr("validator.objects.verdict", None)
        world.apply("unchecked", 1)
    given_reclaim(world)
    world.given_quota(2, A100)
    world.given_machines(1, A100)
    world.apply("lent", 1, A100)
    world.command_node("ReserveNode", "lent", *world.nodes("lent"), reservedDesired="control-plane")
    world.given_quota(9, A100)
    world.given_machines(3, A100)
    world.apply("leaving", 1, A100)
    world.run_pod(*world.nodes("leaving"), interruption="graceful", graceS=600)
    world.delete("leaving")
    world.apply("scaled", 0, autoscaling=True, minNodes=0, maxNodes=2)
    world.create_pod("scaled", "worker")
    world.scale("scaled", 1)
    world.delete_pod("scaled", "worker")
    world.create_pod("serve", "worker", gpus=8)
    world.given_cluster("racks", zone=EAST)
    world.given_quota(18, GB200, zone=EAST)
    content = {"instanceType": GB200, "count": 18, "inRacks": True}
    world.send("AddMachines", zone_path(EAST), content)
    world.apply("acme/racks/nvl", 18, GB200)
    connected = {"zone": EAST, "kubernetes": True}
    world.send("RegisterCluster", cluster_path("acme", "kube"), connected)
    world.publish("np.evt.allocator.acme.prod.serve.CWNodeDeletionRequestSuccess", b"{")
    return world


def given_reclaim(world: WorldHarness) -> None:
    """A NodePool for which a spot Node is preempted, and machines of a type that are held back."""
    world.given_quota(9, L40)
    world.given_machines(2, L40)
    world.apply("cheap", 1, L40, computeClass="spot")
    world.reclaim(1, L40)
    world.apply("dear", 1, L40)


def restored(folded: Folded[S]) -> Folded[S]:
    """What comes back from a snapshot; it must make the same bytes again."""
    again = load(type(folded.state), dump(folded))
    assert list(dump(again)) == list(dump(folded))
    return again


# Every service's state comes back as it was.


@pytest.mark.parametrize("name", NAMES)
def test_a_state_comes_back_from_an_earlier_one_and_the_changes_since(name: str) -> None:
    # given the states of a service on the way to that of a busy control plane
    busy = busy_world().world.log
    log = replace(busy, entries=[*busy.entries], last={**busy.last})
    world = World(services(name), log=log)
    (host,) = world.hosts
    states = []
    while world.read(host, most=len(log.entries) // 6):
        states.append(host.replica.safe)
    world.process(host, even_if_quiet=True)
    states.append(host.replica.safe)

    # when each is saved as its changes since the one before
    lines = list(dump(Folded(host.service.initial)))
    before = Folded(host.service.initial)
    for folded in states:
        changes = [line for line in dump_changes(before, folded) if line]
        lines, before = [*lines, *changes], folded

        # then the lines make the state, and a whole snapshot has as many as are counted
        assert load(type(folded.state), lines) == folded
        assert len(list(dump(folded))) == 1 + count_lines(folded)
    assert len({*map(repr, states)}) > 1


def test_changes_name_what_is_new_or_gone_and_nothing_else() -> None:
    # given receipts of which the oldest is gone
    known = Map({"a": Receipt("created"), "b": Receipt("created")})
    before = Folded(services("quota")[0].initial, Receipts(known))
    known = known.delete("a").set("c", Receipt("deleted"))
    after = Folded(before.state, Receipts(known))

    # when the changes are written
    _, *lines = dump_changes(before, after)

    # then they have a line for each change
    assert [json.loads(line)[:2] for line in lines if line] == [
        ["receipts.known", "c"],
        ["receipts.known", "a"],
    ]
    whole = [*dump(before), *filter(None, dump_changes(before, after))]
    assert load(type(after.state), whole) == after


def test_only_changes_may_remove_or_replace() -> None:
    initial = services("quota")[0].initial
    whole = list(dump(Folded(initial, Receipts(Map({"a": Receipt("created")})))))
    (entry,) = [line for line in whole if b'"a"' in line]
    gone = b'["receipts.known","a"]'
    kind = type(initial)

    assert load(kind, [*whole, whole[0], entry, gone]).receipts == Receipts()
    for lines in ([*whole, entry], [*whole, gone], [*whole, whole[0], gone, gone]):
        with pytest.raises(ValueError, match="cannot be read"):
            load(kind, lines)


@pytest.mark.parametrize("name", NAMES)
def test_the_state_of_a_busy_service_comes_back_as_it_was(name: str) -> None:
    world = busy_world().world
    (folded,) = (host.replica.safe for host in world.hosts if host.service.name == name)
    current = Folded(world.state(name), folded.receipts)

    assert restored(folded) == folded
    assert restored(current) == current


@pytest.mark.parametrize("name", NAMES)
def test_an_initial_state_comes_back_as_it_was(name: str) -> None:
    (service,) = services(name)

    assert restored(Folded(service.initial)) == Folded(service.initial)


def test_a_busy_world_has_something_in_every_field_of_every_state() -> None:
    world = busy_world().world

    empty = {
        (service.name, field)
        for service in world.services
        for field, value in fields_of(world.state(service.name)).items()
        if value == fields_of(service.initial)[field]
    }

    # A service without deadlines has an empty work queue once all is done; others have a full one.
    done = {(name, "work") for name in ("allocator", "capacity", "quota")}
    # No machine is out of service and no rule is broken; such counts are in `test_tallies`.
    done |= {("aggregator", "out_of_service"), ("aggregator", "violations")}
    assert empty <= done, "a round trip proves nothing for a field that is empty"


def fields_of(state: object) -> dict[str, object]:
    """The fields of a state."""
    return {name: getattr(state, name) for name in getattr(state, "__dataclass_fields__", ())}


def test_a_state_written_while_work_waits_comes_back_as_it_was() -> None:
    harness = WorldHarness()
    harness.given_data_center(machines=4, quota=2)
    harness.apply("first", 4)
    with harness.sent_together():
        harness.apply("first", 2, nodeLabels={"team": "new"})
        harness.given_quota(8)
        for _ in range(12):
            for host in harness.world.hosts:
                harness.world.read(host, most=1)
                harness.world.process(host)
                folded = Folded(host.replica.state)
                assert restored(folded) == folded


def test_the_sample_service_comes_back_with_its_work_and_its_receipts() -> None:
    log, replica = Log(NOON), sample_service.PrinterReplica(sample_service.SERVICE)
    sample_service.store(log, sample_service.enqueue(2_000))
    sample_service.store(log, sample_service.enqueue(1, delay_s=60))
    sample_service.store(log, sample_service.print_now(-1))
    sample_service.commit(replica, log)

    assert len(replica.safe.receipts.known) == 3
    assert replica.safe.state.work.next() is not None
    assert restored(replica.safe) == replica.safe


# Equal states make equal bytes.


@dataclass(frozen=True, slots=True)
class Inner:
    """A record inside a state."""

    name: str
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """A record with a mapping."""

    labels: Mapping[str, str]


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
    levels: Map[Colour, int] = Map()
    machines: Map[str, Machine] = Map()
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
    assert list(dump(Folded(FULL)))[1:] == [
        b'["state.records","a",["a",null]]',
        b'["state.records","b",["b","2026-01-01T12:00:00.000001+00:00"]]',
        b'["state.nested","x",[[1,false],[2,true]]]',
        b'["state.nested","y",[]]',
        b'["state.labels",{"a":"2","z":"1"}]',
        b'["state.pair",["left",-1]]',
        b'["state.many",[["m",null],["n","2026-01-01T12:00:00.000001+00:00"]]]',
        b'["state.taints",[{"effect":"NoSchedule","key":"k"},'
        b'{"effect":"NoExecute","key":"k","value":"v"}]]',
        b'["state.level",2]',
        b'["state.colour","red"]',
        b'["state.word","yes"]',
        b'["state.due","2026-01-01T12:00:00.000001+00:00"]',
        b'["state.ratio",1e-9]',
        b'["state.count",0]',
        b'["state.done",true]',
        b'["receipts.order.head",null]',
        b'["receipts.order.tail",null]',
    ]


def test_everything_that_a_state_may_hold_comes_back_with_its_type() -> None:
    again = restored(Folded(FULL)).state

    assert again == FULL
    assert [type(value) for value in fields_of(again).values()] == [
        type(value) for value in fields_of(FULL).values()
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

    first = Folded(State(records=straight, labels=found))
    second = Folded(State(records=shuffled, labels=dict(entries)))
    assert list(dump(first)) == list(dump(second))
    assert load(State, dump(second)) == first


def test_a_moment_of_another_zone_makes_the_same_bytes_and_comes_back_as_the_same_moment() -> None:
    berlin = replace(FULL, due=NOON.astimezone(timezone(timedelta(hours=1))))

    assert list(dump(Folded(berlin))) == list(dump(Folded(FULL)))
    assert restored(Folded(berlin)) == Folded(FULL)


def test_keys_of_a_map_come_back_with_their_type() -> None:
    again = restored(Folded(State(levels=Map({Colour.RED: 1})))).state

    assert [type(key) for key in again.levels] == [Colour]


@pytest.mark.parametrize("labels", [Map(), Map({"b": "2", "a": "1"}), {}, {"b": "2", "a": "1"}])
def test_a_mapping_comes_back_whether_it_is_persistent_or_not(labels: Mapping[str, str]) -> None:
    folded = Folded(State(labels=labels, machines=Map({"m": Machine(labels)})))

    assert restored(folded) == folded


def test_receipts_come_back_with_their_order() -> None:
    receipts = Receipts()
    for command in (sample_service.print_now(1), sample_service.enqueue(1)):
        receipts = receipts.put("c1", build_acceptance(command, "done", 3))

    again = restored(Folded(State(), receipts)).receipts

    assert again == receipts
    assert set(again.known.values()) == {Receipt("done", 3)}


K = TypeVar("K", bound=str)


@dataclass(frozen=True, slots=True)
class Working(WithWork[Colour | Literal["x"]], Generic[K]):
    """A state with a work queue, and a map whose keys have a type of their own."""

    names: Map[K, Inner] = Map()


def test_a_generic_state_comes_back_as_it_was() -> None:
    state: Working[str] = Working(names=Map({"a": Inner("a")}))
    folded = Folded(replace(state, work=state.work.put("x").put_at("x", NOON)))

    assert restored(folded) == folded


# Lines of another shape are refused, so that the service reads the log from its start.


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b'["state.later",1]', id="a field of another release"),
        pytest.param(b'["state.records","a",["a"]]', id="a record with fewer fields"),
        pytest.param(b'["state.records","a",["a",null,1]]', id="a record with more fields"),
        pytest.param(b'["state.records","a",{"name":"a"}]', id="a record of another form"),
        pytest.param(b'["state.nested","x",[[1]]]', id="an entry without a value"),
        pytest.param(b'["state.pair",["left"]]', id="half a pair"),
        pytest.param(b'["state.many",5]', id="a number for a list"),
        pytest.param(b'["state.taints",[{"key":"k"}]]', id="a value that its model refuses"),
        pytest.param(b'["state.level",3]', id="a number without a name"),
        pytest.param(b'["state.colour","blue"]', id="a text without a name"),
        pytest.param(b'["state.word","no"]', id="a word of another list"),
        pytest.param(b'["state.due","yesterday"]', id="no moment"),
        pytest.param(b'["state.due",5]', id="a number for a moment"),
        pytest.param(b'["state.due","2026-01-01T12:00:00"]', id="a moment of no zone"),
        pytest.param(b'["state.due","0001-01-01T00:00:00+23:00"]', id="a moment before the first"),
        pytest.param(b'["state.done",1]', id="a number for a truth value"),
        pytest.param(b'["state.done",null]', id="nothing for a truth value"),
        pytest.param(b'["state.count","5"]', id="a text for a number"),
        pytest.param(b'["state.count",true]', id="a truth value for a number"),
        pytest.param(b'["state.count",1.0]', id="a fraction for an integer"),
        pytest.param(b'["state.ratio",1e999]', id="a number that is too large"),
        pytest.param(b'["state.ratio",NaN]', id="a number that is none"),
        pytest.param(b'["state.level",true]', id="a truth value for a number with a name"),
        pytest.param(b'["state.records","a",[5,null]]', id="a number for a text"),
        pytest.param(b'["state.records",5,["a",null]]', id="a key of another type"),
        pytest.param(b'["state.records","a",["\\ud800",null]]', id="half a character"),
        pytest.param(b'["state.records","a"]', id="a key without a value"),
        pytest.param(b'["state.labels",{"a":1}]', id="a label that is no text"),
        pytest.param(b'["state.labels",5]', id="a number for a mapping"),
        pytest.param(b'["state.nested","x",[[1,true],[1,true]]]', id="a key that is there twice"),
        pytest.param(b'["state.taints",[{"key":1,"effect":"NoSchedule"}]]', id="a lenient model"),
        pytest.param(b'["state.taints",[{"key":"k","effect":"NoSchedule","x":1}]]', id="too much"),
        pytest.param(b'["state",{"done":true}]', id="a whole state for one field"),
        pytest.param(b'["state.due.x",1]', id="a field of a value"),
        pytest.param(b"5", id="no list"),
        pytest.param(b"[" * 100_000, id="nested too deep"),
        pytest.param(b'["state.count",' + b"9" * 5_000 + b"]", id="too many digits"),
        pytest.param(b"\xff\xfe", id="no UTF-8"),
        pytest.param(b"[", id="no JSON"),
    ],
)
def test_lines_of_another_shape_are_refused(line: bytes) -> None:
    name = line.split(b'"')[1] if b'"' in line else b""
    lines = [known for known in dump(Folded(FULL)) if not known.startswith(b'["' + name + b'"')]

    with pytest.raises(ValueError, match=r".+"):
        load(State, [*lines, line])


@dataclass(frozen=True, slots=True)
class Grant:
    """Two numbers that mean something else each."""

    generation: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Granting:
    """A state with such a record."""

    grant: Grant


@pytest.mark.parametrize(
    "fields", [b'"nodes: int","generation: int"', b'"generation: int","machines: int"']
)
def test_a_record_whose_fields_were_exchanged_or_renamed_is_refused(fields: bytes) -> None:
    # given the lines of a state with a record, written by a release with other fields in it
    names, *lines = dump(Folded(Granting(Grant(generation=2, nodes=60))))
    other = names.replace(b'"generation: int","nodes: int"', fields)
    assert other != names

    # when this release reads them, then it refuses them
    with pytest.raises(ValueError, match="of another shape than this release has"):
        load(Granting, [other, *lines])
    assert load(Granting, [names, *lines]).state == Granting(Grant(generation=2, nodes=60))


def test_lines_without_the_names_of_their_fields_are_refused() -> None:
    with pytest.raises(ValueError, match="of another shape than this release has"):
        load(State, list(dump(Folded(FULL)))[1:])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def replaced(value: Json, path: Sequence[int], other: Json) -> Json:
    """A value with another one somewhere in it; the path chooses where."""
    if not path or not isinstance(value, list | dict) or not value:
        return other
    if isinstance(value, dict):
        name = sorted(value)[path[0] % len(value)]
        return {**value, name: replaced(value[name], path[1:], other)}
    index = path[0] % len(value)
    return [*value[:index], replaced(value[index], path[1:], other), *value[index + 1 :]]


@given(st.integers(0, 50), st.lists(st.integers(0, 5), max_size=5), JSON)
def test_whatever_stands_in_a_line_is_refused_or_read_as_it_stands(
    number: int, path: Sequence[int], other: Json
) -> None:
    # given the lines of a state, with anything somewhere in one of them
    lines = list(dump(Folded(FULL)))
    index = number % len(lines)
    changed = json.dumps(replaced(json.loads(lines[index]), path, other))
    lines[index] = changed.encode()

    # when they are read
    try:
        again = load(State, lines)
    except ValueError:
        return

    # then they are refused, or nothing of it was changed on the way
    written = {json.dumps(json.loads(line), sort_keys=True) for line in dump(again)}
    assert written == {json.dumps(json.loads(line), sort_keys=True) for line in lines}


def test_a_state_that_lacks_fields_names_them() -> None:
    gone = (b'["state.due"', b'["state.count"')
    lines = [line for line in dump(Folded(FULL)) if not line.startswith(gone)]

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
