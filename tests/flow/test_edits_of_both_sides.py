"""People edit a NodePool in the cluster while commands on the bus change other fields of it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from hypothesis import example, given
from hypothesis import strategies as st

from support.agent.agent import MemoryAgent, Sides
from support.agent.api_server import ApiServer
from support.constants import H100
from support.world_harness import WorldHarness

FIELDS: Final = ("targetNodes", "nodeLabels", "nodeAnnotations", "metadata.labels")
VALUES: Final = {
    name: [{"key": each} for each in "xyz"] if name != "targetNodes" else [3, 4, 5]
    for name in FIELDS
}
"""The values that people give to each field."""
ACTIONS_MAX: Final = 60
"""How many actions an agent may need once everybody else has stopped."""


class Edits:
    """A NodePool on which both sides agreed, an agent, and the last value of each field.

    owned: the fields that people in the cluster edit; the others are changed on the bus.

    A value has the type of its field: a number, a list of taints or a map of labels.
    """

    def __init__(self, owned: frozenset[str]) -> None:
        bus = WorldHarness()
        bus.given_data_center(machines=0, quota=50)
        self.owned = owned
        self.sides = Sides(bus, ApiServer())
        self.agent = MemoryAgent(self.sides)
        self.last: dict[str, object] = {"targetNodes": 2}
        spec = {"instanceType": H100, "targetNodes": 2}
        self.sides.api.create({"metadata": {"name": "pool"}, "spec": spec})
        self.settle()

    def edit(self, field: str, value: Any) -> None:
        """Somebody sets a field on the side that owns it."""
        if field in self.owned:
            name = field.removeprefix("metadata.")
            fields = {name: value}
            part = "spec" if name == field else "metadata"
            self.sides.api.patch("pool", {part: fields})
        else:
            self._set_on_bus(field, value)
        self.last[field] = value

    def _set_on_bus(self, field: str, value: Any) -> None:
        self.sides.bus.run_until_idle()
        pool = self.sides.pools()["pool"]
        spec: dict[str, Any] = dict(pool.spec)
        labels: Mapping[str, str] = pool.labels
        if field == "metadata.labels":
            labels = value
        else:
            spec[field] = value
        target, kind = spec.pop("targetNodes"), spec.pop("instanceType")
        self.sides.bus.apply("pool", target, kind, metadata={"labels": labels}, **spec)

    def settle(self) -> None:
        """The agent works until nothing is missing."""
        for _ in range(ACTIONS_MAX):
            self.sides.bus.run_until_idle()
            self.agent.look()
            if not self.agent.step():
                return
        raise AssertionError("it never comes to rest")

    def values(self) -> tuple[Mapping[str, object], Mapping[str, object]]:
        """The fields that were edited, as the cluster and as the bus has them."""
        found, pool = self.sides.objects()["pool"], self.sides.pools()["pool"]
        return self._edited(found.spec, found.labels), self._edited(pool.spec, pool.labels)

    def _edited(
        self, spec: Mapping[str, object], labels: Mapping[str, str]
    ) -> Mapping[str, object]:
        """Return the fields that were edited with their values."""
        return {
            name: dict(labels) if name == "metadata.labels" else spec.get(name)
            for name in self.last
        }


READS: Final = "the agent reads both"
ACTS: Final = "the agent acts"
SERVES: Final = "the services work"
RESTARTS: Final = "the agent restarts"
STEPS: Final[Mapping[str, Callable[[Edits], object]]] = {
    ACTS: lambda edits: edits.agent.step(),
    "the agent reads the bus": lambda edits: edits.agent.look_at_bus(),
    "the agent reads the cluster": lambda edits: edits.agent.look_at_cluster(),
    READS: lambda edits: edits.agent.look(),
    SERVES: lambda edits: edits.sides.bus.run_until_idle(),
    RESTARTS: lambda edits: edits.agent.restart(),
    "the agent forgets what it has sent": lambda edits: edits.agent.attempts.clear(),
}
Edit = tuple[int, int]
"""Which of the two fields of a run is edited, and to which of its values."""
Steps = Sequence[str | Edit]


def _steps() -> st.SearchStrategy[Steps]:
    edits = st.tuples(st.integers(0, 1), st.integers(0, 2))
    # Some of them twice, so that an agent has time for what people do.
    works = st.sampled_from([*STEPS, READS, ACTS, SERVES])
    return st.lists(edits | works, min_size=4, max_size=25)


def _sent() -> Steps:
    """Return the steps after which the bus has a first edit, and the object does not say so."""
    return [(0, 0), READS, ACTS, SERVES]


@given(st.permutations(FIELDS).map(lambda fields: fields[:2]), _steps())
# A second edit is made before the agreement on the first one is recorded.
@example(
    fields=["targetNodes", "nodeLabels"], steps=[*_sent(), (0, 1), READS, (1, 0), ACTS, SERVES]
)
# As above, and the agent begins again with nothing known.
@example(fields=["targetNodes", "nodeLabels"], steps=[*_sent(), (0, 1), (1, 0), RESTARTS])
# The object gets the labels back of which a command of the same generation has told before.
@example(
    fields=["metadata.labels", "nodeLabels"],
    steps=[*_sent(), (0, 1), READS, ACTS, SERVES, (0, 0), READS, ACTS, SERVES],
)
# A command is refused for a change that the read model does not show yet.
@example(
    fields=["targetNodes", "metadata.labels"], steps=[(0, 0), READS, (1, 0), ACTS, SERVES, ACTS]
)
def test_an_edit_of_a_field_that_the_other_side_does_not_change_is_never_lost(
    fields: Sequence[str], steps: Steps
) -> None:
    # given a NodePool of which each side changes a field of its own
    edits = Edits(frozenset(fields[:1]))

    # when everything happens in any order
    for step in steps:
        if isinstance(step, str):
            STEPS[step](edits)
        else:
            field, value = fields[step[0]], step[1]
            edits.edit(field, VALUES[field][value])
    edits.settle()

    # then both sides have the last value of each, and nobody is told that an edit was lost
    assert edits.values() == (edits.last, edits.last)
    assert list(edits.sides.api.events.values()) == []
