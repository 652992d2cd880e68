"""The index of labels accepts the machines that the definition of an affinity accepts."""

from hypothesis import given
from hypothesis import strategies as st

from contracts.samples import affinity_to
from nodepool.contract.affinity import Affinity, Operator
from nodepool.placement.label_index import REMEMBERED_MAX, LabelIndex
from support.affinity import matches

keys = st.sampled_from(["a", "b", "c"])
values = st.sampled_from(["", "x", "y", "1", "02", "-3", str(2**63)])
labels = st.lists(st.dictionaries(keys, values), max_size=6)
operators = st.sampled_from([*Operator, "Near"])
expressions = st.tuples(keys, operators, st.lists(values, max_size=3).map(tuple))
affinities = st.lists(st.lists(expressions, max_size=3), min_size=1, max_size=3).map(
    lambda terms: affinity_to(*terms)
)


@given(labels, st.lists(affinities, max_size=3))
def test_an_index_accepts_what_each_affinity_accepts(
    machines: list[dict[str, str]], wanted: list[Affinity]
) -> None:
    index = LabelIndex(len(machines), lambda key: [machine.get(key) for machine in machines])

    for affinity in (None, Affinity(), *wanted, *wanted):
        accepted = index.find_accepted(affinity)
        assert [bool(accepted >> place & 1) for place in range(len(machines))] == [
            matches(affinity, machine) for machine in machines
        ]
        assert accepted < 1 << len(machines)


def test_a_label_is_looked_at_when_an_affinity_names_it_and_only_once() -> None:
    asked: list[str] = []

    def labels_of(key: str) -> list[str | None]:
        asked.append(key)
        return ["x", None]

    index = LabelIndex(2, labels_of)
    affinity = affinity_to([("a", "In", ("x",)), ("b", "Exists", ())], [("a", "Exists", ())])

    assert [index.find_accepted(affinity) for _ in range(3)] == [1, 1, 1]
    assert asked == ["a", "b"]


def test_an_index_forgets_what_many_others_have_come_after() -> None:
    asked: list[str] = []

    def labels_of(key: str) -> list[str | None]:
        asked.append(key)
        return ["x"]

    # given an index of machines that stay the same, while affinities are changed again and again
    index = LabelIndex(1, labels_of)
    for number in range(10 * REMEMBERED_MAX):
        assert index.find_accepted(affinity_to([(f"l{number}", "Exists", ())])) == 1
        assert index.remembered <= 2 * REMEMBERED_MAX

    # then one that was forgotten is evaluated again
    assert index.find_accepted(affinity_to([("l0", "In", ("x",))])) == 1
    assert asked.count("l0") == 2
