"""The line of NodePools that wait behaves as a list, and finds the first that fits without it."""

from hypothesis import given
from hypothesis import strategies as st

from nodepool.contract.keys import PoolKey
from quota.line import SPARSE, Line

Change = tuple[str, str, int | None]
"""A NodePool that is put into the line or dropped from it, and what it lacks."""

keys = st.sampled_from([f"k{number}" for number in range(12)])
changes: st.SearchStrategy[list[Change]] = st.lists(
    st.tuples(st.sampled_from(("put", "put", "drop")), keys, st.none() | st.integers(-3, 9)),
    max_size=60,
)


def line_after(history: list[Change]) -> tuple[Line, dict[str, int | None]]:
    """A line after these changes, and the dictionary that it stands for."""
    line, model = Line(), dict[str, int | None]()
    for kind, key, lacks in history:
        if kind == "put":
            line = line.put(PoolKey(key), lacks)
            model[key] = lacks
        else:
            line = line.drop(PoolKey(key))
            model.pop(key, None)
    return line, model


@given(changes)
def test_a_line_keeps_the_order_in_which_pools_came(history: list[Change]) -> None:
    line, model = line_after(history)

    assert list(line) == list(model)
    assert len(line) == len(model)
    assert [f"k{number}" in line for number in range(12)] == [
        f"k{number}" in model for number in range(12)
    ]


@given(changes, st.integers(-4, 10))
def test_the_first_that_fits_is_the_one_that_a_search_from_the_front_finds(
    history: list[Change], room: int
) -> None:
    line, model = line_after(history)

    fitting = [key for key, lacks in model.items() if lacks is not None and lacks <= room]

    assert line.first(room) == next(iter(fitting), None)


@given(changes)
def test_nothing_is_kept_of_pools_that_left(history: list[Change]) -> None:
    line, model = line_after(history)

    for key in model:
        line = line.drop(PoolKey(key))

    assert line == Line()


def test_a_long_line_of_which_most_left_is_a_small_tree() -> None:
    line = Line()
    for number in range(2_000):
        line = line.put(PoolKey(f"{number}"), number)
    for number in range(1, 1_999):
        line = line.drop(PoolKey(f"{number}"))

    assert list(line) == ["0", "1999"]
    assert len(line.least) <= 2 * 12
    assert (line.first(1_998), line.first(-1)) == ("0", None)
    assert line.drop(PoolKey("0")).first(1_999) == "1999"


def test_a_line_that_is_never_empty_grows_with_its_pools_and_not_with_those_that_left() -> None:
    # given a NodePool that waits all the time
    line = Line().put(PoolKey("waits"), 9)

    # when thousands of others come and go
    sizes = set[int]()
    for number in range(3_000):
        line = line.put(PoolKey(f"k{number}"), 1).put(PoolKey("second"), 2)
        line = line.drop(PoolKey(f"k{number}")).drop(PoolKey("second"))
        sizes.add(len(line.least))

    # then the line is as it was
    assert list(line) == ["waits"]
    assert line.first(9) == "waits"
    assert line.tail <= SPARSE
    assert max(sizes) <= SPARSE
