"""The commands of a log with their senders and outcomes, whatever the messages contain."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from nodepool.cli.audit_table import cells, change_text, document, outcome_text
from nodepool.client.audit import CommandRecord, Trail, Wanted, command_record, outcome_of
from nodepool.contract.log import Entry

NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)
ALICE = "acme;alice;editor;10.0.0.7"
ALL = Wanted()
SCALE = "np.cmd.acme.prod.train.ScaleNodePool"


def entry(position: int, subject: str, content: object) -> Entry:
    """A message of the log, a second after the one before."""
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return Entry(position, NOON + timedelta(seconds=position), subject, text, {})


def command(position: int, subject: str = SCALE, actor: object = ALICE, **data: object) -> Entry:
    """A command as it is stored for an actor."""
    sent = {"specversion": "1.0", "id": f"c{position}", "source": "cli/alice", "data": data}
    return entry(position, subject, sent if actor is None else {**sent, "actor": actor})


def outcome(position: int, cause: int, name: str = "CommandAccepted", **data: object) -> Entry:
    """The outcome of the command at a position."""
    content = {"specversion": "1.0", "causeposition": cause, "data": data}
    return entry(position, f"np.evt.validator.acme.prod.train.{name}", content)


def trail(*entries: Entry, wanted: Wanted = ALL) -> list[CommandRecord]:
    """The commands that are kept of a log."""
    kept = Trail(wanted)
    kept.read(entries)
    return kept.all()


def test_each_command_has_its_own_outcome() -> None:
    accepted, refused, waiting = trail(
        command(1),
        command(2, actor=None),
        command(3),
        outcome(4, 2, "CommandRefused", reason="Invalid", field="a", message="b"),
        outcome(5, 1, result="configured", dryRun=True),
        outcome(6, 1, result="unchanged"),
    )

    assert outcome_text(accepted) == "accepted: configured (dry run)"
    assert outcome_text(refused) == "refused: Invalid: a: b"
    assert outcome_text(waiting) == "none yet"
    assert (accepted.user, refused.user) == ("acme/alice", "operator")
    assert document(waiting)["status"] == {}


@pytest.mark.parametrize(
    ("subject", "data", "shown"),
    [
        (SCALE, {}, "nodepool/train"),
        ("np.cmd.acme.prod.train.CordonNode", {"node": "g1"}, "node/g1"),
        ("np.cmd.acme.prod._.RegisterCluster", {"zone": "z"}, "cluster/prod"),
        ("np.cmd.acme._._.SetQuota", {"zone": "z", "instanceType": "t"}, "quota/z.t"),
        ("np.cmd.acme._._.FindCapacity", {}, "organisation/acme"),
        ("np.cmd.fleet.z._.AddMachines", {}, "zone/z"),
        ("np.cmd.fleet.z.g1.BreakMachine", {}, "machine/g1"),
    ],
)
def test_a_command_names_its_object(subject: str, data: dict[str, object], shown: str) -> None:
    record = command_record(command(1, subject, **data))

    assert record is not None
    assert f"{record.kind}/{record.name}" == shown


@pytest.mark.parametrize("actor", [7, "", "root", "acme;alice;king;h", ["acme"]])
def test_an_actor_that_cannot_be_read_is_nobody_and_not_the_operator(actor: object) -> None:
    record = command_record(command(1, actor=actor))

    assert record is not None
    assert (record.user, record.actor) == ("-", None)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"7", {"actor": ALICE}, {"specversion": "1.0", "data": 1}]
)
def test_a_command_without_attributes_is_the_operators(content: object) -> None:
    record = command_record(entry(3, SCALE, content))

    assert record is not None
    assert (record.user, record.id, record.name) == ("operator", "3", "train")


@pytest.mark.parametrize("content", [b"", b"[]", {"data": {}}, {"causeposition": "1", "data": {}}])
def test_an_outcome_that_cannot_be_read_answers_nothing(content: object) -> None:
    subject = "np.evt.validator.acme.prod.train.CommandAccepted"

    assert outcome_of(entry(2, subject, content)) is None


@pytest.mark.parametrize(
    ("wanted", "positions"),
    [
        (Wanted(), [1, 2, 3]),
        (Wanted(by="alice"), [1, 3]),
        (Wanted(by="acme/alice"), [1, 3]),
        (Wanted(by="operator"), [2]),
        (Wanted(by="acme"), []),
        (Wanted(name="g1"), [3]),
        (Wanted(kind="nodepool", name="train"), [1, 2]),
        (Wanted(since=NOON + timedelta(seconds=2)), [2, 3]),
    ],
)
def test_only_the_wanted_commands_are_kept(wanted: Wanted, positions: list[int]) -> None:
    log = (command(1), command(2, actor=None), command(3, node="g1"))

    assert [record.position for record in trail(*log, wanted=wanted)] == positions


def test_the_newest_commands_are_kept() -> None:
    kept = Trail(Wanted(), 2)

    kept.read(command(position) for position in range(1, 6))

    assert [record.position for record in kept.all()] == [4, 5]
    assert kept.older == 3


def test_a_command_is_shown_in_one_line() -> None:
    (record,) = trail(command(1), outcome(2, 1, result="configured"))

    time = "2026-11-28T12:00:01Z"
    sent = [time, "acme/alice", "editor", "10.0.0.7", "ScaleNodePool", "nodepool/train"]
    assert cells(record, wide=False) == [*sent, "accepted: configured"]
    more = ["acme/prod", "cli/alice", "c1"]
    assert cells(record, wide=True) == ["1", *sent, *more, "accepted: configured"]
    assert change_text(record) == f"ScaleNodePool by acme/alice (editor) from 10.0.0.7 at {time}"
