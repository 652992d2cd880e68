import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.samples import sample
from nodepool.contract.commands import DeleteNodePool, ScaleNodePool, SetQuota
from nodepool.contract.outcomes import CommandOutcome, build_acceptance, build_refusal
from nodepool.state.receipts import RECEIPTS_MAX, Receipts

SCALE = sample(ScaleNodePool, dry_run=False)
DELETE = sample(DeleteNodePool, dry_run=False)
CONFIGURED = build_acceptance(SCALE, "configured", 2)
NOT_FOUND = build_refusal(SCALE, "metadata.name", "NodePool train does not exist", "NotFound")


def test_a_new_command_has_no_outcome_yet() -> None:
    assert Receipts().outcome_of(SCALE, "c1") is None


@pytest.mark.parametrize(
    "outcome",
    [
        pytest.param(CONFIGURED, id="accepted"),
        pytest.param(build_acceptance(SCALE, "configured"), id="accepted without a generation"),
        pytest.param(NOT_FOUND, id="refused"),
    ],
)
def test_a_command_sent_again_has_the_outcome_it_had(outcome: CommandOutcome) -> None:
    receipts = Receipts().put("c1", outcome)

    assert receipts.outcome_of(SCALE, "c1") == outcome


@pytest.mark.parametrize(
    "outcome",
    [
        pytest.param(build_acceptance(SCALE, "configured", 2, dry_run=True), id="a dry run"),
        pytest.param(build_refusal(SCALE, "", "KeyError", "InternalError"), id="an internal error"),
    ],
)
def test_a_command_that_is_to_be_processed_again_leaves_no_receipt(
    outcome: CommandOutcome,
) -> None:
    assert Receipts().put("c1", outcome) == Receipts()


def test_the_first_outcome_of_an_id_stays() -> None:
    receipts = Receipts().put("c1", CONFIGURED)

    assert receipts.put("c1", NOT_FOUND) is receipts
    assert receipts.outcome_of(SCALE, "c1") == CONFIGURED


def test_an_id_stands_only_for_the_command_it_was_sent_with() -> None:
    receipts = Receipts().put("c1", CONFIGURED)

    assert receipts.outcome_of(SCALE, "c2") is None
    assert receipts.outcome_of(DELETE, "c1") is None
    assert receipts.outcome_of(sample(ScaleNodePool, org="other"), "c1") is None
    assert receipts.outcome_of(sample(ScaleNodePool, pool="other"), "c1") is None


def test_a_command_about_an_organisation_is_remembered_as_well() -> None:
    command = sample(SetQuota)
    outcome = build_acceptance(command, "configured")

    assert Receipts().put("c1", outcome).outcome_of(command, "c1") == outcome


def test_the_oldest_is_forgotten_when_there_are_too_many() -> None:
    receipts = Receipts()
    for number in range(RECEIPTS_MAX + 2):
        receipts = receipts.put(f"c{number}", CONFIGURED)

    known = [receipts.outcome_of(SCALE, f"c{number}") is not None for number in (0, 1, 2)]

    assert known == [False, False, True]
    assert len(receipts.order) == len(receipts.known) == RECEIPTS_MAX


@given(st.text(), st.text())
def test_two_ids_never_share_a_receipt(one: str, other: str) -> None:
    receipts = Receipts().put(one, CONFIGURED)

    assert (receipts.outcome_of(SCALE, other) is not None) is (one == other)


def test_names_with_slashes_do_not_run_into_each_other() -> None:
    receipts = Receipts().put(
        "c1", build_acceptance(sample(ScaleNodePool, org="a/b", cluster="c"), "done")
    )

    assert receipts.outcome_of(sample(ScaleNodePool, org="a", cluster="b/c"), "c1") is None


names = st.text(st.characters(blacklist_characters=" ", codec="utf-8"), min_size=1, max_size=3)
paths = st.tuples(names, names, names)


@given(paths, paths, st.text("a /|", max_size=3), st.text("a /|", max_size=3))
def test_no_two_commands_share_a_receipt_whatever_their_names_and_ids_hold(
    one: tuple[str, str, str], other: tuple[str, str, str], id: str, other_id: str
) -> None:
    def command(path: tuple[str, str, str]) -> ScaleNodePool:
        fields = dict(zip(("org", "cluster", "pool"), path, strict=True))
        return SCALE.model_copy(update=fields)

    receipts = Receipts().put(id, build_acceptance(command(one), "done"))

    found = receipts.outcome_of(command(other), other_id) is not None
    assert found is ((one, id) == (other, other_id))
