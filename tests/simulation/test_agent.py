"""Simulations of an agent between a log and an API server: by seeds, and by pairs of steps."""

from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement

import pytest

from agent.actions import Action, Create, RecordEvent, Send
from agent.pools.actions import missing_for_pool
from nodepool.contract.commands import DeleteNodePool
from support.agent.storm import Storm
from support.constants import A100, H100

STEPS_MAX = 40


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    seed = metafunc.config.getoption("--seed")
    seeds = range(metafunc.config.getoption("--seeds")) if seed is None else [seed]
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", seeds)


def _run(storm: Storm) -> None:
    violation = _violation(storm)
    if violation:
        tail = "\n".join(storm.trace[-60:])
        pytest.fail(f"{violation}\n{tail}\nrepeat with: --seed={storm.seed}", pytrace=False)


def _violation(storm: Storm) -> str:
    try:
        storm.run()
    except AssertionError as violation:
        return str(violation)
    return ""


def test_one_agent_brings_both_sides_together(seed: int) -> None:
    _run(Storm(seed, agents=1))


def test_two_agents_with_stale_views_bring_both_sides_together(seed: int) -> None:
    _run(Storm(seed, agents=2))


def test_what_is_changed_in_the_cluster_alone_is_never_undone(seed: int) -> None:
    _run(Storm(seed, agents=1, with_bus=False))


def test_both_sides_come_together_after_backups_are_restored(seed: int) -> None:
    _run(Storm(seed, agents=1, with_restores=True))


# What is done before an agent that was away comes back, in a state in which both sides agreed.


def _create(storm: Storm, kind: str = H100, target: int = 2) -> None:
    spec = {"instanceType": kind, "targetNodes": target}
    storm.sides.api.create({"metadata": {"name": "one"}, "spec": spec})
    storm.deleted["one"] = False


def _apply(target: int) -> Callable[[Storm], object]:
    def act(storm: Storm) -> None:
        storm.sides.bus.apply("one", target)
        storm.deleted["one"] = False

    return act


def _recreate(storm: Storm) -> None:
    storm.cluster_delete("one")
    storm.sides.api.patch("one", {"metadata": {"finalizers": None}})
    _create(storm, A100)


SCENARIOS: dict[str, tuple[bool, Sequence[Callable[[Storm], object]]]] = {
    "created in the cluster": (False, [_create]),
    "created on the bus": (False, [_apply(3)]),
    "created on both sides alike": (
        False,
        [_create, _apply(2)],
    ),
    "created on both sides": (False, [_create, _apply(3)]),
    "created on both sides of other types": (
        False,
        [lambda storm: _create(storm, A100), _apply(3)],
    ),
    "edited in the cluster": (True, [lambda storm: storm.edit("one", "targetNodes", 5)]),
    "labelled in the cluster": (
        True,
        [lambda storm: storm.edit("one", "metadata.labels", {"l": "x"})],
    ),
    "scaled on the bus": (True, [lambda storm: storm.sides.bus.scale("one", 6)]),
    "edited on both sides": (
        True,
        [
            lambda storm: storm.edit("one", "targetNodes", 5),
            lambda storm: storm.sides.bus.scale("one", 6),
        ],
    ),
    "edited on both sides in other fields": (
        True,
        [
            lambda storm: storm.edit("one", "nodeLabels", {"a": "x"}),
            lambda storm: storm.sides.bus.scale("one", 6),
        ],
    ),
    "deleted in the cluster": (True, [lambda storm: storm.cluster_delete("one")]),
    "deleted on the bus": (True, [lambda storm: storm.bus_delete("one")]),
    "deleted on both sides": (
        True,
        [lambda storm: storm.bus_delete("one"), lambda storm: storm.cluster_delete("one")],
    ),
    "deleted in the cluster and scaled on the bus": (
        True,
        [
            lambda storm: storm.cluster_delete("one"),
            lambda storm: storm.sides.bus.scale("one", 6),
        ],
    ),
    "deleted on the bus and edited in the cluster": (
        True,
        [
            lambda storm: storm.bus_delete("one"),
            lambda storm: storm.edit("one", "targetNodes", 7),
        ],
    ),
    "deleted and created again on the bus": (
        True,
        [lambda storm: storm.bus_delete("one"), _apply(4)],
    ),
    "deleted and created again in the cluster": (True, [_recreate]),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_agent_that_crashes_after_any_two_actions_ends_the_same(name: str) -> None:
    undisturbed = _ended(name, ())

    for crashes in combinations_with_replacement(range(1, undisturbed.actions + 3), 2):
        ended = _ended(name, crashes)

        assert ended.state == undisturbed.state, f"{name}, with crashes after {crashes}"


class _Ended:
    """How a scenario ends.

    actions: how many actions it took.
    state: both sides, without what an order of events leaves there.
    """

    def __init__(self, storm: Storm) -> None:
        self.actions = storm.processes[0].carried_out
        objects = storm.sides.objects()
        self.state = {
            name: (dict(pool.spec), dict(pool.labels), name in objects)
            for name, pool in storm.sides.pools().items()
        }


def _ended(name: str, crashes: Sequence[int]) -> _Ended:
    """A scenario after all is done, with an agent that crashes after so many actions."""
    is_shared, acts = SCENARIOS[name]
    storm = Storm(0, agents=1)
    (agent,) = storm.processes
    if is_shared:
        _create(storm)
        storm.settle()
    for act in acts:
        act(storm)
    agent.carried_out = 0
    agent.restart()
    for _ in range(STEPS_MAX):
        storm.sides.bus.run_until_idle()
        agent.look()
        moved = agent.step()
        storm.check_status()
        if agent.carried_out in crashes:
            agent.restart()
        if not moved:
            storm.check_end()
            return _Ended(storm)
    raise AssertionError(f"{name}: it never comes to rest")


def test_an_agent_that_has_not_seen_a_deletion_sends_no_edit_as_a_new_nodepool() -> None:
    # given an object that the bus has, of which nothing is agreed, and an edit of it
    storm = Storm(0, agents=2)
    stale, other = storm.processes
    _create(storm)
    stale.look()
    for _ in ("the record of the command", "the command"):
        assert stale.step()
    storm.sides.bus.run_until_idle()
    storm.edit("one", "targetNodes", 5)
    stale.restart()

    # when it is deleted, which another agent sends, and the first agent sees that on the bus only
    storm.cluster_delete("one")
    other.restart()
    assert other.step()
    storm.sides.bus.run_until_idle()
    stale.look_at_bus()
    assert stale.step()

    # then its record of a command is refused, and the NodePool stays away
    assert stale.done.endswith(": Conflict")
    storm.settle()
    storm.check_end()
    assert storm.sides.pools() == {}


# Faults that are put into the comparison on purpose.


def _without(*kinds: type[Action]) -> Callable[..., Sequence[Action]]:
    def compare(*args: object) -> Sequence[Action]:
        actions = missing_for_pool(*args)  # type: ignore[arg-type]  # Whatever it takes.
        return [action for action in actions if not isinstance(action, kinds)]

    return compare


def _found(compare: Callable[..., Sequence[Action]], text: str) -> bool:
    """Whether one of some seeds shows the fault of a comparison."""
    return any(text in _violation(Storm(seed, agents=1, compare=compare)) for seed in range(40))


def test_a_comparison_that_tells_nobody_is_found() -> None:
    assert _found(_without(RecordEvent), "is lost without a word")


def test_a_comparison_that_creates_no_object_is_found() -> None:
    assert _found(_without(Create), "bus ['")


def test_a_comparison_that_deletes_nothing_on_the_bus_is_found() -> None:
    def compare(*args: object) -> Sequence[Action]:
        actions = missing_for_pool(*args)  # type: ignore[arg-type]  # Whatever it takes.
        return [
            action
            for action in actions
            if not (isinstance(action, Send) and isinstance(action.command, DeleteNodePool))
        ]

    assert _found(compare, "cluster {")
