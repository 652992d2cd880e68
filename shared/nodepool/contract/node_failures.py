"""How Nodes and machines fail, in few words: for metrics, which must not have a label per sentence.

Messages are for people and may quote anything. Each says what failed with one of these phrases, or
names the conditions that were reported, as `nodepool.contract.health` does.
"""

from collections.abc import Iterable
from typing import Final

from nodepool.contract.health import BY_TYPE, cordon_cause
from nodepool.contract.words import Word


class NodeFailure(Word):
    """What failed, of what is no condition of a Node, and the cause in a metric."""

    BOOT_FAILED = "BootFailed"
    REGISTRATION_FAILED = "RegistrationFailed"
    NOT_JOINED = "NotJoined"
    REBOOT_FAILED = "RebootFailed"
    NOT_REBOOTED = "NotRebooted"
    VERIFICATION_FAILED = "VerificationFailed"
    NOT_VERIFIED = "NotVerified"
    UNANSWERED = "Unanswered"
    OTHER = "Other"

    @property
    def phrase(self) -> str:
        """How a message says it; empty for `OTHER`, which no phrase stands for."""
        return _PHRASES[self]


_PHRASES: Final = {
    NodeFailure.BOOT_FAILED: "the machine did not boot",
    NodeFailure.REGISTRATION_FAILED: "the machine was turned away at registration",
    NodeFailure.NOT_JOINED: "it did not join its cluster within",
    NodeFailure.REBOOT_FAILED: "its reboot failed",
    NodeFailure.NOT_REBOOTED: "it did not reboot within",
    NodeFailure.VERIFICATION_FAILED: "it did not pass its verification",
    NodeFailure.NOT_VERIFIED: "it was not verified within",
    NodeFailure.UNANSWERED: "its machine did not answer",
    NodeFailure.OTHER: "",
}
PROBLEMS: Final = frozenset(map(cordon_cause, BY_TYPE))
"""The problems of a Node by which a cordon, and a failure, are named."""
ADMIN_DRAIN: Final = "AdminDrain"
ADMIN_REBOOT: Final = "AdminReboot"
RESERVATION_PENDING: Final = "ReservationPending"
RACK_UNAVAILABLE: Final = "RackUnavailable"
"""The cause of a cordon of the rest of a rack; the NVLink domain of the rack follows it."""
INTENDED: Final = ("AdminCordon", ADMIN_DRAIN, ADMIN_REBOOT, RESERVATION_PENDING)
"""Why a Node is cordoned because somebody asked for it."""
CORDON_CAUSES: Final = (*INTENDED, RACK_UNAVAILABLE)
"""Why a Node is cordoned that has no problem; a command may name anything else."""


def failure_of(message: str) -> str:
    """Return the first failure that a message names: a `NodeFailure` or a problem.

    Empty if the message names no failure.
    """
    places = {name: message.find(phrase) for name, phrase in _phrases()}
    found = [(place, name) for name, place in places.items() if place >= 0]
    return min(found, default=(0, ""))[1]


def cordon_label(cause: str) -> str:
    """Return the first cause of a cordon as metrics name it.

    The cause may be a rack, and is `Other` if unknown.
    """
    first = cause.partition(",")[0]
    name = first.partition(" ")[0]  # A rack is followed by its NVLink domain.
    return name if name in PROBLEMS or name in CORDON_CAUSES else NodeFailure.OTHER.value


def _phrases() -> Iterable[tuple[str, str]]:
    yield from ((failure.value, phrase) for failure, phrase in _PHRASES.items() if phrase)
    yield from ((f"{name}", f": {name}") for name in PROBLEMS)
