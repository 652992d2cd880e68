"""A snapshot of another release is read by the names of its fields, or refused with a reason."""

import json
from collections.abc import Callable, Mapping
from dataclasses import field, fields, make_dataclass
from datetime import UTC, datetime
from enum import Enum, IntEnum, StrEnum
from functools import cache
from typing import Any, Literal, NamedTuple, NewType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map
from pydantic import BaseModel, ConfigDict, create_model
from pydantic.alias_generators import to_camel

from nodepool.engine.conversion import Conversion
from nodepool.engine.folded import Folded
from nodepool.engine.snapshot import AnotherShape, Loader, dump, dump_changes, load
from nodepool.state.receipts import Receipt, Receipts

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PoolKey = NewType("PoolKey", str)
Kind = Any
"""A class that a test makes, such as that of a state."""
Make = Callable[..., Kind]


def record(name: str, /, **types: Any) -> Kind:
    """A dataclass with these fields: a type, or a type and a default."""
    pairs = {each: hint if isinstance(hint, tuple) else (hint,) for each, hint in types.items()}
    made = [
        (each, hint, *(field(default=it) for it in rest)) for each, (hint, *rest) in pairs.items()
    ]
    return make_dataclass(name, made, frozen=True, slots=True)


def model(name: str, /, **types: Any) -> Kind:
    """A model with these fields, written in camelCase."""
    made: Any = {
        each: hint if isinstance(hint, tuple) else (hint, ...) for each, hint in types.items()
    }
    return create_model(name, __base__=_Value, **made)


class _Value(BaseModel):
    model_config = ConfigDict(
        defer_build=True,
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=True,
        serialize_by_alias=True,
    )


def map_of(key: Kind, item: Kind) -> Kind:
    """The type of a map."""
    return Map[key, item]


def many_of(item: Kind) -> Kind:
    """The type of a list."""
    return tuple[item, ...]


@cache
def state(pool: Kind) -> Kind:
    """A state with a map of such values, a single one, and one in each other place."""
    return record(
        "State",
        pools=Map[PoolKey, pool],
        by_zone=Map[str, Map[str, pool]],
        one=pool,
        maybe=pool | None,
        none=pool | None,
        many=tuple[pool, ...],
        pair=tuple[int, pool],
        labels=Mapping[str, pool],
    )


def filled(kind: Kind, pool: object) -> Kind:
    """Such a state, with the same value in each place."""
    return kind(
        pools=Map({PoolKey("a"): pool}),
        by_zone=Map({"z": Map({"a": pool})}),
        one=pool,
        maybe=pool,
        none=None,
        many=(pool, pool),
        pair=(1, pool),
        labels={"x": pool},
    )


def converted(value: object, kind: Kind) -> Kind:
    """What a release with the state `kind` reads of a snapshot that another one has written."""
    folded = load(kind, dump(Folded(value)), converts=True)
    # What it writes then is a snapshot of its own.
    assert load(kind, dump(folded)) == folded
    return folded.state


def refusal(value: object, kind: Kind) -> str:
    """Why such a release refuses the snapshot."""
    with pytest.raises(ValueError, match=r".") as error:
        load(kind, dump(Folded(value)), converts=True)
    return str(error.value)


# What is safe is read, wherever it stands.

RECORD_AND_MODEL = pytest.mark.parametrize("make", [record, model])


@RECORD_AND_MODEL
def test_a_new_field_has_its_default(make: Make) -> None:
    old, new = make("Pool", size=int), make("Pool", size=int, losses=(int, 7))

    assert converted(filled(state(old), old(size=1)), state(new)) == filled(
        state(new), new(size=1, losses=7)
    )


@RECORD_AND_MODEL
def test_a_field_that_is_gone_is_dropped(make: Make) -> None:
    old, new = make("Pool", in_use=int, size=int, at=str), make("Pool", size=int)

    assert converted(filled(state(old), old(in_use=5, size=1, at="x")), state(new)) == filled(
        state(new), new(size=1)
    )


@RECORD_AND_MODEL
def test_fields_in_another_order_keep_their_values(make: Make) -> None:
    old, new = make("Pool", in_use=int, size=int), make("Pool", size=int, in_use=int)

    assert converted(filled(state(old), old(in_use=5, size=1)), state(new)) == filled(
        state(new), new(size=1, in_use=5)
    )


@RECORD_AND_MODEL
def test_a_class_may_change_within_a_class_that_does_not(make: Make) -> None:
    old, new = make("Inner", a=int), make("Inner", a=int, b=(str, "new"))
    before, after = make("Pool", inner=old), make("Pool", inner=new)

    assert converted(filled(state(before), before(inner=old(a=1))), state(after)) == filled(
        state(after), after(inner=new(a=1, b="new"))
    )


@RECORD_AND_MODEL
def test_a_field_may_take_none_or_more_words(make: Make) -> None:
    old = make("Pool", size=int, word=Literal["a", "b"], words=tuple[Literal["a"], ...])
    new = make(
        "Pool", size=int | None, word=Literal["b", "c", "a"], words=tuple[Literal["a", "b"], ...]
    )

    values = {"size": 1, "word": "b", "words": ("a",)}
    assert converted(filled(state(old), old(**values)), state(new)) == filled(
        state(new), new(**values)
    )


@RECORD_AND_MODEL
def test_a_field_that_had_no_default_may_get_one(make: Make) -> None:
    old, new = make("Pool", size=int, at=int), make("Pool", size=(int, 1), at=(int, 0))

    assert converted(filled(state(old), old(size=1, at=2)), state(new)) == filled(
        state(new), new(size=1, at=2)
    )


def test_a_model_may_get_a_field_although_it_is_the_default_of_another_model() -> None:
    # given a model whose field has a model with all its defaults as default
    inner = model("Inner", a=(int, 1), b=(str, "b"))
    newer = model("Inner", a=(int, 1), b=(str, "b"), c=(int, 3))
    old = model("Pool", size=int, inner=(inner, inner()))
    new = model("Pool", size=int, inner=(newer, newer()))

    # when the inner one gets a field, then it has its default in each
    for written in (old(size=1), old(size=1, inner=inner(a=5))):
        read = new(size=1, inner=newer(**written.inner.model_dump()))
        assert converted(filled(state(old), written), state(new)) == filled(state(new), read)


def test_a_model_that_differs_from_a_default_only_in_a_field_that_is_gone_has_the_default() -> None:
    inner, newer = model("Inner", a=(int, 1), b=(str, "")), model("Inner", a=(int, 1))
    old = model("Pool", size=int, inner=(inner, inner()))
    new = model("Pool", size=int, inner=(newer, newer()))

    written = filled(state(old), old(size=1, inner=inner(b="x")))

    assert converted(written, state(new)) == filled(state(new), new(size=1))


class Before:
    """What a release had."""

    class Key(NamedTuple):
        """A key, or a part of a value."""

        zone: str
        name: str

    class Colour(StrEnum):
        """Texts with names."""

        RED = "red"
        BLUE = "blue"

    class Level(IntEnum):
        """Numbers with names."""

        LOW = 1
        HIGH = 2


class After:
    """What another release has."""

    class Key(NamedTuple):
        """With a field more."""

        zone: str
        region: str = "here"
        name: str = ""

    class Colour(StrEnum):
        """With a member more, and one less."""

        GREEN = "green"
        RED = "red"

    class Level(IntEnum):
        """With other numbers."""

        LOW = 2
        HIGH = 3
        TOP = 1


def test_a_named_tuple_has_the_default_of_a_new_field() -> None:
    old, new = state(Before.Key), state(After.Key)

    assert converted(filled(old, Before.Key("z", "n")), new) == filled(
        new, After.Key("z", "here", "n")
    )


@RECORD_AND_MODEL
def test_members_of_an_enumeration_that_are_still_there_are_read(make: Make) -> None:
    old, new = make("Pool", colour=Before.Colour), make("Pool", colour=After.Colour)

    assert (
        converted(filled(state(old), old(colour="red")), state(new))
        == filled(state(new), new(colour=After.Colour.RED))
        or make is record
    )
    assert converted(filled(state(old), old(colour=Before.Colour.RED)), state(new)) == filled(
        state(new), new(colour=After.Colour.RED)
    )


def test_members_of_an_enumeration_may_be_keys() -> None:
    old, new = (record("State", a=map_of(each.Colour, int)) for each in (Before, After))

    assert converted(old(a=Map({Before.Colour.RED: 1})), new).a == Map({After.Colour.RED: 1})
    assert "State.a" in refusal(old(a=Map({Before.Colour.BLUE: 1})), new)


def test_a_state_gets_fields_of_each_kind() -> None:
    # given a state with a part that holds maps
    part = record("Part", names=Map[str, int], gone=Map[str, int], count=int)
    old = record("State", part=part, gone=part, away=int, entries=Map[str, int])
    value = part(names=Map({"a": 1}), gone=Map({"b": 2}), count=3)
    written = old(part=value, gone=value, away=4, entries=Map({"c": 5}))

    # when a release reads it that has other fields in both
    newer = record(
        "Part",
        count=int,
        names=Map[str, int],
        more=(Map[str, str], Map({"x": "y"})),
        word=(str, "w"),
    )
    fresh = record("Fresh", known=(Map[str, int], Map({"k": 1})), total=(float, 0.5))
    new = record(
        "State",
        entries=Map[str, int],
        part=newer,
        fresh=(fresh, fresh()),
        due=(datetime, NOON),
        empty=(Map[str, float], Map()),
    )

    # then each new one has its default, and the others are as they were
    assert converted(written, new) == new(
        entries=Map({"c": 5}), part=newer(count=3, names=Map({"a": 1}))
    )


def test_changes_of_an_older_release_are_read_like_the_rest() -> None:
    # given a snapshot of another shape with changes in two steps: new, changed and removed entries
    pool = record("Pool", size=int)
    newer = record("Pool", size=int, losses=(int, 0))
    old, new = (record("State", pools=map_of(str, kind), total=int) for kind in (pool, newer))
    first = Folded(old(pools=Map({"a": pool(size=1), "b": pool(size=2)}), total=3))
    second = Folded(
        old(pools=Map({"a": pool(size=5)}), total=5), Receipts(Map({"c": Receipt("done")}))
    )
    third = Folded(old(pools=Map({"d": pool(size=7)}), total=7), second.receipts)
    lines = [*dump(first), *dump_changes(first, second), *dump_changes(second, third)]

    # when they are read, then they make the last state
    folded = load(new, filter(None, lines), converts=True)
    assert folded == load(new, dump(third), converts=True)
    assert [(key, each.size, each.losses) for key, each in folded.state.pools.items()] == [
        ("d", 7, 0)
    ]

    # but changes of yet another shape are none of it
    mixed = [*dump(first), *dump(folded)]
    with pytest.raises(AnotherShape):
        load(new, mixed, converts=True)


def test_a_loader_tells_what_it_has_converted_and_nothing_of_an_equal_shape() -> None:
    old = record("State", a=int, b=str, c=Before.Colour)
    for kind, notes in [
        (old, None),
        (
            record("State", a=int, c=Before.Colour, d=(int, 0)),
            ["State.d is new", "State.b is gone"],
        ),
        (
            record("State", b=str, a=int, c=After.Colour),
            ["State has other types, defaults or another order", "Colour has other members"],
        ),
    ]:
        loader = Loader(kind, converts=True)
        for line in dump(Folded(old(a=1, b="", c=Before.Colour.RED))):
            loader.add(line)
        assert loader.notes == notes


def test_another_shape_is_refused_where_it_is_not_to_be_converted() -> None:
    old, new = record("State", a=int), record("State", a=int, b=(int, 0))

    with pytest.raises(AnotherShape, match=r"^it is of another shape than this release has$"):
        load(new, dump(Folded(old(a=1))))


# What may have another meaning is refused, and the class and the field are named.


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        pytest.param(
            {"size": int}, {"size": str}, "Pool.size: its type was int and is str", id="a type"
        ),
        pytest.param(
            {"size": int | None},
            {"size": int},
            "Pool.size: its type was int | None and is int",
            id="no None any more",
        ),
        pytest.param(
            {"size": int},
            {"size": int, "used": int},
            "Pool.used: it is new and has no default",
            id="a new field without a default",
        ),
        pytest.param(
            {"size": int},
            {"total": (int, 0)},
            "Pool.total: it is new, and size, which is gone, had its type",
            id="a field with another name",
        ),
        pytest.param(
            {"inner": record("Inner", a=int)},
            {"inner": record("Other", a=int)},
            "Pool.inner: its type was Inner and is Other",
            id="a class with another name",
        ),
        pytest.param(
            {"inner": many_of(record("Inner", a=int))},
            {"inner": many_of(record("Inner", a=str))},
            "Inner.a: its type was int and is str",
            id="a type deep within",
        ),
    ],
)
@RECORD_AND_MODEL
def test_a_class_whose_fields_may_mean_something_else_is_refused(
    make: Make, before: Mapping[str, Any], after: Mapping[str, Any], reason: str
) -> None:
    # given the schema of another release
    old, new = state(make("Pool", **before)), state(make("Pool", **after))

    # when this release compares it with its own
    line = json.loads(next(iter(dump(Folded(_empty(old))))))
    conversion = Conversion(line[1], new)

    # then it names the class and the field
    assert reason in conversion.faults[0]


def _empty(kind: Kind) -> Kind:
    """A state without any value, which is never read."""
    return kind(**{each.name: None if each.name != "labels" else {} for each in fields(kind)})


def test_a_model_whose_default_has_changed_is_refused() -> None:
    old, new = model("Pool", size=(int, 1)), model("Pool", size=(int, 2))

    assert refusal(filled(state(old), old()), state(new)) == (
        "it is of another shape than this release has: Pool.size: its default was 1, and it is 2"
    )
    assert "Pool.size: its default was 1, and it has none" in refusal(
        filled(state(old), old()), state(model("Pool", size=int))
    )


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (Before.Colour.BLUE, After.Colour, "Pool.it: Colour has no 'blue' any more"),
        (Before.Level.LOW, After.Level, "Pool.it: Level has no 1 any more, or with another name"),
    ],
)
@RECORD_AND_MODEL
def test_a_member_that_is_gone_or_has_another_name_is_refused_where_it_is_used(
    make: Make, before: Enum, after: type[Enum], reason: str
) -> None:
    old, new = make("Pool", it=type(before)), make("Pool", it=after)

    text = refusal(filled(state(old), old(it=before)), state(new))

    assert reason in text
    assert "State." in text


@RECORD_AND_MODEL
def test_a_word_that_is_gone_is_refused_where_it_is_used(make: Make) -> None:
    old, new = make("Pool", it=Literal["a", "b"]), make("Pool", it=Literal["a"])

    assert converted(filled(state(old), old(it="a")), state(new)).one.it == "a"
    assert "Pool" in refusal(filled(state(old), old(it="b")), state(new))


def test_keys_whose_class_has_changed_are_refused() -> None:
    old, new = (record("State", a=map_of(each.Key, int)) for each in (Before, After))

    text = refusal(old(a=Map([(Before.Key("z", "n"), 1)])), new)

    assert text.endswith("State.a: the class of its keys has changed")


def test_a_part_that_holds_maps_and_did_not_is_refused() -> None:
    small, large = record("Part", a=int), record("Part", a=int, b=(Map[str, int], Map()))
    old, new = (record("State", pools=Map[str, int], part=part) for part in (small, large))

    reason = "State.part: its values were written in another form"
    assert reason in refusal(old(pools=Map(), part=small(a=1)), new)
    assert reason in refusal(new(pools=Map(), part=large(a=1)), old)


def test_a_state_with_another_name_is_refused() -> None:
    text = refusal(record("State", a=int)(a=1), record("Ledger", a=int))

    assert "Ledger: the snapshot has no class of this name" in text


def test_a_refusal_says_how_much_more_there_is() -> None:
    text = refusal(record("State", a=int, b=int)(a=1, b=2), record("State", a=str, b=float))

    assert text.endswith("State.a: its type was int and is str, and 1 more")


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(5, id="no list"),
        pytest.param([5], id="no list of lists"),
        pytest.param([[]], id="a class without a name"),
        pytest.param([["State", 5]], id="a field that is no text"),
        pytest.param([["State"]] * 1_000, id="too many classes"),
        pytest.param([["State", *["a: int"] * 10_000]], id="too many fields"),
        pytest.param([["State", "a: " + "Literal[" * 10_000]], id="too long a type"),
        pytest.param([["State", "a: int"], ["State", "b: int"]], id="two classes of a name"),
        pytest.param([["State", "a"]], id="a field without a type"),
        pytest.param([[f"C{n}", f"a: C{n + 1}"] for n in range(500)], id="a long chain"),
        pytest.param([["State", "a: State"]], id="a class in itself"),
    ],
)
def test_a_schema_that_no_release_has_written_is_refused(schema: object) -> None:
    line = json.dumps(["schema", schema]).encode()

    with pytest.raises(ValueError, match=r"schema|class|field"):
        load(record("State", a=int), [line], converts=True)


# For any two shapes, what both have is kept, and nothing else is made up.

TYPES: Mapping[str, tuple[Any, st.SearchStrategy[Any], Any]] = {
    "int": (int, st.integers(-9, 9), 3),
    "str": (str, st.text(max_size=2), "d"),
    "maybe": (int | None, st.none() | st.integers(-9, 9), None),
    "many": (tuple[str, ...], st.lists(st.text(max_size=2), max_size=2).map(tuple), ("d",)),
    "level": (Before.Level, st.sampled_from(Before.Level), Before.Level.LOW),
    "maps": (many_of(Map[str, int]), st.just((Map({"a": 1}), Map())), ()),
    "due": (datetime, st.just(NOON), NOON),
}
SHAPES = st.lists(st.sampled_from(sorted(TYPES)), max_size=6, unique=True)


@given(st.sampled_from([record, model]), SHAPES, SHAPES, st.data())
def test_what_both_releases_have_is_kept_and_what_is_new_has_its_default(
    make: Make, before: list[str], after: list[str], data: st.DataObject
) -> None:
    # given two shapes of a class, whose fields each have a type of their own
    # A model holds no map.
    before, after = (
        [each for each in names if make is record or each != "maps"] for names in (before, after)
    )
    old, new = (
        make("Pool", size=int, **{name: TYPES[name][::2] for name in names})
        for names in (before, after)
    )
    pools = [{name: data.draw(TYPES[name][1]) for name in before} for _ in range(2)]
    first, second = (Folded(filled(state(old), old(size=1, **values))) for values in pools)

    # when a snapshot with one of them, and changes, is read as the other
    lines = [*dump(first), *filter(None, dump_changes(first, second))]
    folded = load(state(new), lines, converts=True)

    # then it has all that both have
    kept = {name: value for name, value in pools[1].items() if name in after}
    assert folded.state == filled(state(new), new(size=1, **kept))
    assert load(state(new), dump(folded)) == folded
