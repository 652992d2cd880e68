"""What was on its way when a run ended comes to its end before it is compared with a model."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from faults.replay import faults_at_rest, replayed
from nodepool.contract.log import Entry, LogId
from support.services import NAMES, services
from support.world_harness import WorldHarness


def faults_of(log: Sequence[Entry], id: LogId, names: Sequence[str]) -> list[str]:
    """What is wrong with a log, after which only these services go on."""
    return list(faults_at_rest(replayed(services(*names), log, id), []))


def given_a_preemption_on_its_way() -> WorldHarness:
    """A NodePool waits for a machine of a spot Node, which goes in some minutes."""
    world = WorldHarness()
    world.given_data_center(machines=2)
    world.apply("cheap", 2, computeClass="spot")
    world.apply("train", 1)
    return world


def committed(world: WorldHarness) -> Sequence[Entry]:
    """The log, once each service has committed that it has processed all of it."""
    for host in world.world.hosts:
        world.world.process(host, even_if_quiet=True)
    return tuple(world.world.log.entries)


@pytest.mark.parametrize("again", [False, True], ids=["wanted", "wanted again"])
def test_a_run_that_ends_during_a_preemption_has_nothing_wrong(again: bool) -> None:
    # given a run that ends while a spot Node is being preempted, for what is wanted or was
    world = given_a_preemption_on_its_way()
    if again:
        world.scale("train", 0)
        world.scale("train", 1)

    # when its log is checked
    faults = faults_of(committed(world), world.world.log.id, NAMES)

    # then the Node is not missed
    assert faults == []


def test_a_copy_that_ends_with_any_of_the_last_commits_has_nothing_wrong() -> None:
    # given a run whose services went on while its log was copied
    world = given_a_preemption_on_its_way()
    log = committed(world)

    # when each copy that ends with a commit is checked
    ends = [n for n, entry in enumerate(log, 1) if entry.subject.startswith("np.commit.")]
    faults = [faults_of(log[:end], world.world.log.id, NAMES) for end in ends[-12:]]

    # then nothing is wrong with any copy
    assert faults == [[]] * 12


def test_a_preemption_that_never_ends_is_found() -> None:
    # given the same run, after which no service ends a preemption
    world = given_a_preemption_on_its_way()
    others = [name for name in NAMES if name not in ("preemption", "lifecycle")]

    # when its log is checked
    faults = faults_of(committed(world), world.world.log.id, others)

    # then the Nodes that stay are named
    assert len(faults) == 1
    assert "acme/prod/train wants 1 Nodes, while the spot Nodes" in faults[0]


def test_the_log_of_a_run_stays_as_it_is_while_it_is_checked() -> None:
    world = given_a_preemption_on_its_way()
    log = world.world.log
    before = tuple(log.entries)

    replay = replayed(services(), log.entries, log.id)
    replay.pass_time(timedelta(minutes=8))

    assert len(replay.log.entries) > len(before)
    assert tuple(log.entries) == before
