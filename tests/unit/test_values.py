"""Copies of values equal those of the standard library, for each dataclass with fields."""

import dataclasses
from dataclasses import dataclass
from functools import cached_property

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodepool.state.values import replace


@dataclass(frozen=True)
class Open:
    """A value with a cached property."""

    width: int
    height: int = 1

    @cached_property
    def area(self) -> int:
        return self.width * self.height


@dataclass(frozen=True, slots=True)
class Closed:
    """A value with slots."""

    first: str
    second: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Derived(Closed):
    """A value with slots of its own and inherited slots."""

    third: int | None = None


@given(st.sampled_from([Open(2), Closed("a", (1,)), Derived("a", (), 3)]), st.data(), st.integers())
def test_a_copy_equals_that_of_the_standard_library(
    value: Open | Closed | Derived, data: st.DataObject, content: int
) -> None:
    names = [field.name for field in dataclasses.fields(value)]
    changes = dict.fromkeys(data.draw(st.sets(st.sampled_from(names))), content)

    copied = replace(value, **changes)  # type: ignore[arg-type]  # The fields are drawn.

    assert copied == dataclasses.replace(value, **changes)  # type: ignore[arg-type]
    assert type(copied) is type(value)


def test_a_copy_computes_cached_properties_again() -> None:
    value = Open(2, 3)
    assert value.area == 6

    assert replace(value, height=4).area == 8


def test_an_unknown_field_is_an_error() -> None:
    with pytest.raises(TypeError, match="third"):
        replace(Closed("a"), third=1)  # type: ignore[call-arg]
