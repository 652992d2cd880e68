"""Who may send which command, and the subjects of the front door."""

from itertools import pairwise

import pytest

from nodepool.contract import commands
from nodepool.contract.door import door_of, subject_behind
from nodepool.contract.messages import Command, OfMachine, OfPool, OfZone
from nodepool.contract.roles import ROLES, SENDERS, Role, commands_of

PEOPLE: tuple[Role, ...] = ("viewer", "editor", "owner", "operator")


def test_every_command_says_who_may_send_it() -> None:
    assert {command.__name__ for command in SENDERS} == commands.COMMANDS
    assert all(SENDERS.values())


def test_the_operator_may_send_every_command() -> None:
    assert {*commands_of("operator")} == {*SENDERS}


def test_each_role_of_people_may_send_what_the_role_before_it_may() -> None:
    for less, more in pairwise(PEOPLE):
        assert {*commands_of(less)} < {*commands_of(more)}


def test_only_the_operator_changes_the_fleet() -> None:
    fleet = [command for command in SENDERS if {OfZone, OfMachine} & {*command.__mro__}]

    assert fleet
    assert all(SENDERS[command] == {"operator"} for command in fleet)


def test_only_the_operator_changes_limits() -> None:
    limits: list[type[Command]] = [commands.SetQuota, commands.DeleteQuota]

    assert all(SENDERS[command] == {"operator"} for command in limits)


def test_an_agent_sends_commands_about_its_own_cluster_only() -> None:
    assert {*commands_of("agent")} == {
        commands.RegisterCluster,
        commands.ApplyNodePool,
        commands.DeleteNodePool,
        commands.CordonNode,
        commands.UncordonNode,
    }


def test_no_role_of_an_organisation_but_the_agent_sends_what_is_not_about_its_node_pools() -> None:
    found = {
        command.__name__
        for role in ROLES
        if role not in ("operator", "agent")
        for command in commands_of(role)
        if OfPool not in command.__mro__
    }

    assert found == {"FindCapacity"}


def test_what_a_tenant_publishes_arrives_behind_the_door_and_is_found_there_again() -> None:
    subject = "np.cmd.acme.prod.train.ScaleNodePool"

    assert door_of(subject) == "np.door.cmd.acme.prod.train.ScaleNodePool"
    assert subject_behind(door_of(subject)) == subject


@pytest.mark.parametrize("subject", ["", "np", "np.", "$KV.nodes.a", "_INBOX.x"])
def test_other_subjects_have_no_door(subject: str) -> None:
    with pytest.raises(ValueError, match="not a subject"):
        door_of(subject)
    with pytest.raises(ValueError, match="not a subject"):
        subject_behind(subject)
