"""What became of a request to a controller, where it was not a reading."""

from dataclasses import dataclass
from enum import StrEnum


class Trouble(StrEnum):
    """Why a controller gave no usable answer.

    UNREACHABLE: no connection, or the connection broke.
    TIMED_OUT: no complete answer within the time that a request has.
    UNAUTHORIZED: the controller refuses the credential.
    NO_CREDENTIAL: the file or the variable with the credential cannot be read.
    UNTRUSTED: the certificate is not the expected one, or of no trusted authority.
    SERVER_ERROR: the controller answered with a status from 500 on, or that it is asked too much.
    REFUSED: the controller answered with another status that is no success.
    NONSENSE: what the controller answered is no Redfish, or larger than an answer may be.
    """

    UNREACHABLE = "Unreachable"
    TIMED_OUT = "TimedOut"
    UNAUTHORIZED = "Unauthorized"
    NO_CREDENTIAL = "NoCredential"
    UNTRUSTED = "Untrusted"
    SERVER_ERROR = "ServerError"
    REFUSED = "Refused"
    NONSENSE = "Nonsense"

    @property
    def is_of_one_request(self) -> bool:
        """Whether the controller is well, and only this request is not what it can do."""
        return self is Trouble.REFUSED


@dataclass(frozen=True, slots=True)
class Failure:
    """A request without a usable answer.

    trouble: the kind of failure.
    text: one line for people, without credentials.
    is_repeated: whether this is the last failure once more, because the controller is in a pause
        after it and was not asked.
    """

    trouble: Trouble
    text: str
    is_repeated: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """The controller has accepted the reset; a later reading shows its effect."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The reset was not carried out, and will not be."""

    reason: Failure


@dataclass(frozen=True, slots=True)
class Unknown:
    """The reset was sent, and may have been carried out, or may still be.

    A later reading may show it. A controller that did not answer in time may act on it long after.
    """

    reason: Failure


Outcome = Done | Refused | Unknown
"""What became of a reset."""
