import pytest

from nodepool.contract.node_failures import NodeFailure, cordon_label, failure_of


@pytest.mark.parametrize(
    ("message", "failure"),
    [
        ("registration of Node g1 failed: the machine did not boot: BMC is silent", "BootFailed"),
        (
            "registration of Node g1 failed: the machine was turned away at registration",
            "RegistrationFailed",
        ),
        (
            "registration of Node g1 failed: it did not join its cluster within 30 minutes",
            "NotJoined",
        ),
        ("Node g1 is deleted: its reboot failed: the machine did not boot", "RebootFailed"),
        ("Node g1 is deleted: it did not reboot within 30 minutes", "NotRebooted"),
        (
            "Node g1 is deleted: it did not pass its verification: GPUMissing",
            "VerificationFailed",
        ),
        ("Node g1 is deleted: it was not verified within 120 minutes", "NotVerified"),
        (
            "Node g1 is deleted: its machine did not answer a drain in time and goes to triage",
            "Unanswered",
        ),
        ("Node g1 is deleted: GPUMissing, ReadonlyFilesystem (FilesystemIsReadOnly)", "GPUMissing"),
        ("Node g1 is deleted: NotReady (NodeStatusUnknown)", "NotReady"),
        ("Node g1 is deleted", ""),
        ("a sentence of another release", ""),
    ],
)
def test_a_message_names_what_has_failed(message: str, failure: str) -> None:
    assert failure_of(message) == failure


@pytest.mark.parametrize(
    ("cause", "label"),
    [
        ("XIDErrors,AdminCordon", "XIDErrors"),
        ("NotReady", "NotReady"),
        ("AdminDrain", "AdminDrain"),
        ("RackUnavailable DH4-061-US-EAST-04A", "RackUnavailable"),
        ("ReservationPending", "ReservationPending"),
        ("ticket-4711", "Other"),
        ("", "Other"),
    ],
)
def test_a_cordon_is_named_by_the_first_of_its_causes(cause: str, label: str) -> None:
    assert cordon_label(cause) == label


def test_each_failure_but_the_last_has_a_phrase_of_its_own() -> None:
    phrases = [failure.phrase for failure in NodeFailure]

    assert phrases[-1] == ""
    assert all(phrases[:-1])
    assert len(set(phrases)) == len(NodeFailure)
