"""The small parts that the harness and the auditor are made of."""

from datetime import UTC, datetime

from nodepool.contract.events import CommandAccepted, CommandRefused, CWNodePoolScaledUp
from nodepool.contract.model import NodePhase
from support.audit.facts import History, Pool, Stay
from support.texts import MachineNumbers, dead_letter_text, message_text, outcome_text

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_a_history_has_the_value_of_each_position() -> None:
    history = History[str]()

    history.add(3, "a")
    history.add(7, "b")

    assert [history.as_of(position) for position in (2, 3, 6, 7, 9)] == [None, "a", "a", "b", "b"]
    assert [history.since(position) for position in (2, 4, 8)] == [["a", "b"], ["a", "b"], ["b"]]
    assert history.last == "b"


def test_a_pool_holds_its_nodes_until_their_departure_is_known() -> None:
    pool = Pool("acme/prod/train", "uid", ("acme", "US-EAST-04A", "h100"))

    pool.assignments = [4, 5, 15]
    pool.departures = [10, 20]

    assert pool.held == 1
    assert [pool.held_as_of(position) for position in (9, 10, 20)] == [3, 2, 1]
    assert [pool.held_at(position) for position in (4, 9, 10, 15, 20)] == [1, 2, 1, 2, 1]
    assert pool.reserved == 1
    assert pool.offering == ("US-EAST-04A", "h100")


def test_a_pool_does_not_hold_nodes_that_are_reserved_for_the_control_plane() -> None:
    pool = Pool("acme/prod/train", "uid", ("acme", "US-EAST-04A", "h100"))

    pool.assignments = [4, 5, 6]
    pool.lend(10, 1)
    pool.lend(20, -1)

    assert [pool.held_as_of(position) for position in (9, 10, 20)] == [3, 2, 3]
    assert (pool.held, pool.present) == (3, 3)


def test_a_stay_is_leaving_from_its_request_to_its_cancellation_or_once_it_is_warned() -> None:
    pool = Pool("acme/prod/train", "uid", ("acme", "US-EAST-04A", "h100"))
    requested = Stay(pool, "US-EAST-04A/g1", NOON, NodePhase.PRODUCTION)
    requested.removals.add(5, True)
    requested.removals.add(8, False)
    warned = Stay(pool, "US-EAST-04A/g2", NOON, NodePhase.PRODUCTION, warned=(5, NOON))

    assert [requested.is_leaving(position) for position in (4, 5, 8)] == [False, True, False]
    assert [warned.is_leaving(position) for position in (4, 5)] == [False, True]
    assert not requested.is_preempted(5)
    assert warned.is_preempted(5)


def test_machines_are_numbered_in_the_order_in_which_they_were_added() -> None:
    machines = MachineNumbers()

    for name in ("gbbbbbb", "gaaaaaa", "gbbbbbb"):
        machines.add(name)

    assert machines.replace("gaaaaaa, gbbbbbb, gcccccc") == "n2, n1, gcccccc"
    assert [machines.name_of(number) for number in ("n1", "n2", "gcccccc")] == [
        "gbbbbbb",
        "gaaaaaa",
        "gcccccc",
    ]


def test_messages_are_lines_with_the_fields_that_tell_them_apart() -> None:
    accepted = CommandAccepted(command="ApplyNodePool", result="created", generation=1)
    done = CommandAccepted(command="SetQuota", result="done")
    refused = CommandRefused(command="ApplyNodePool", reason="Invalid", field="a.b", message="is c")

    assert message_text(CWNodePoolScaledUp(message="", before=1, after=3)) == (
        "CWNodePoolScaledUp 1 3"
    )
    assert [outcome_text(outcome) for outcome in (accepted, done, refused)] == [
        "created 1",
        "done",
        "Invalid a.b: is c",
    ]
    assert dead_letter_text("np.dead.quota", b'{"subject": "np.evt.x.a.b.c.Event"}') == (
        "quota: Event"
    )
