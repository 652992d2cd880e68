import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodepool.contract.commands import DeleteNodePool, ScaleNodePool, SetQuota
from nodepool.contract.events import CommandAccepted, CommandRefused
from nodepool.contract.messages import Command, path_fields
from nodepool.state.receipts import RECEIPTS_MAX, Receipts

SCALE = ScaleNodePool(org="acme", cluster="prod", pool="train", target_nodes=3)
DELETE = DeleteNodePool(org="acme", cluster="prod", pool="train")


def accepted(
    command: Command, generation: int | None = 2, *, dry_run: bool = False
) -> CommandAccepted:
    """A command that changed what it asked for."""
    return CommandAccepted(
        **path_fields(command),
        command=type(command).__name__,
        result="configured",
        generation=generation,
        dry_run=dry_run,
    )


def refused(command: Command, *, by_our_fault: bool = False) -> CommandRefused:
    """A command that changed nothing."""
    return CommandRefused(
        **path_fields(command),
        command=type(command).__name__,
        reason="InternalError" if by_our_fault else "NotFound",
        field="metadata.name",
        message="NodePool train does not exist",
    )


def test_a_command_that_was_never_sent_has_no_outcome_to_repeat() -> None:
    assert Receipts().again(SCALE, "c1") is None


@pytest.mark.parametrize(
    "outcome",
    [
        pytest.param(accepted(SCALE), id="accepted"),
        pytest.param(accepted(SCALE, None), id="accepted without a generation"),
        pytest.param(refused(SCALE), id="refused"),
    ],
)
def test_a_command_sent_again_has_the_outcome_it_had(
    outcome: CommandAccepted | CommandRefused,
) -> None:
    receipts = Receipts().put("c1", outcome)

    assert receipts.again(SCALE, "c1") == outcome


@pytest.mark.parametrize(
    "outcome",
    [
        pytest.param(accepted(SCALE, dry_run=True), id="a dry run"),
        pytest.param(refused(SCALE, by_our_fault=True), id="a refusal by our own fault"),
    ],
)
def test_what_may_be_asked_again_is_not_remembered(
    outcome: CommandAccepted | CommandRefused,
) -> None:
    assert Receipts().put("c1", outcome) == Receipts()


def test_the_first_outcome_of_an_id_stays() -> None:
    receipts = Receipts().put("c1", accepted(SCALE))

    assert receipts.put("c1", refused(SCALE)) is receipts
    assert receipts.again(SCALE, "c1") == accepted(SCALE)


def test_an_id_answers_only_for_the_command_it_was_sent_with() -> None:
    receipts = Receipts().put("c1", accepted(SCALE))

    assert receipts.again(SCALE, "c2") is None
    assert receipts.again(DELETE, "c1") is None
    assert receipts.again(SCALE.model_copy(update={"org": "other"}), "c1") is None
    assert receipts.again(SCALE.model_copy(update={"pool": "other"}), "c1") is None


def test_a_command_about_an_organisation_is_remembered_as_well() -> None:
    command = SetQuota(org="acme", zone="US-EAST-02A", instance_type="x", limit=8)

    assert Receipts().put("c1", accepted(command)).again(command, "c1") == accepted(command)


def test_the_oldest_is_forgotten_when_there_are_too_many() -> None:
    receipts = Receipts()
    for number in range(RECEIPTS_MAX + 2):
        receipts = receipts.put(f"c{number}", accepted(SCALE))

    known = [receipts.again(SCALE, f"c{number}") is not None for number in (0, 1, 2)]

    assert known == [False, False, True]
    assert len(receipts.order) == len(receipts.known) == RECEIPTS_MAX


@given(st.text(), st.text())
def test_two_ids_never_share_a_receipt(one: str, other: str) -> None:
    receipts = Receipts().put(one, accepted(SCALE))

    assert (receipts.again(SCALE, other) is not None) is (one == other)
