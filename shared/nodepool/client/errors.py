"""The exceptions of a client, and how errors of the bus are turned into these exceptions."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from nodepool.archive.storage.errors import ArchiveError, StoreError
from nodepool.nats.wire import errors
from nodepool.nats.wire.addresses import without_password
from nodepool.nats.wire.errors import (
    STREAM_NOT_FOUND,
    Denied,
    InDoubt,
    ServerRefusal,
    StreamChanged,
)
from nodepool.nats.wire.library import NatsError

EXTRA: Final = ("duckdb", "obstore", "pyarrow")
"""The packages of the extra `archive`."""


class ClientError(Exception):
    """Any error of a client; its text is one line for a person."""


class Refused(ClientError):
    """The control plane refused a command, and nothing was changed.

    field: the field to correct, as in a manifest; empty if the refusal is not about one field.
    reason: `Invalid`, `Forbidden`, `NotFound`, `Conflict`, `TooManyRequests` or `InternalError`.
    message: one sentence.
    """

    def __init__(self, field: str, reason: str, message: str) -> None:
        super().__init__(f"{field}: {message} ({reason})" if field else f"{message} ({reason})")
        self.field = field
        self.reason = reason
        self.message = message


class NoOutcome(ClientError):
    """No outcome arrived in time; if the command was stored, it will still be processed."""


class NotFound(ClientError):
    """The object does not exist."""


class TimedOut(ClientError):
    """The awaited state was not reached in time."""


class Released(ClientError):
    """The awaited lock was released before it was held."""


class Unreachable(ClientError):
    """No server responds, or the server refuses, or it has no control plane."""


@contextmanager
def translate_errors(url: str) -> Iterator[None]:
    """Turn errors of the bus that are raised inside the context into `Unreachable`."""
    try:
        yield
    except ClientError:
        raise
    except Denied as refusal:
        raise build_denial(url, refusal.description) from None
    except (ServerRefusal, StreamChanged) as error:
        address = without_password(url)
        if isinstance(error, ServerRefusal) and error.code != STREAM_NOT_FOUND:
            message = f"the server at {address} refuses: {error.description} ({error.code})"
        else:
            message = f"no control plane is set up at {address}: start one with 'nodepool up'"
        raise Unreachable(message) from None
    except (errors.ServerUnreachable, InDoubt, NatsError, OSError):
        raise not_responding(url) from None


@contextmanager
def translate_archive_errors() -> Iterator[None]:
    """Turn what an archive raises inside the context into errors of a client.

    The lack of a package that archives need is one of them.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in EXTRA:
            raise
        text = f"this needs the package {error.name}: pip install 'nodepool[archive]'"
        raise ClientError(text) from None
    except StoreError as error:
        raise Unreachable(str(error)) from None
    except ArchiveError as error:
        raise ClientError(str(error)) from None


def build_denial(url: str, place: str) -> Unreachable:
    """Return the error for a user who may not use a subject, such as `publish to "np.cmd.a"`."""
    return Unreachable(
        f"permission denied for {place} at {without_password(url)}: the user of this connection has"
        " no right to it; use other credentials, or ask the operator for this right"
    )


def describe_limit(what: str, holder: object) -> str:
    """Return that a user of an organisation may not do something, and who may.

    what: a verb and its object, such as `see dead letters`.
    holder: the user, if known.
    """
    user = str(holder) if holder is not None else "a user of an organisation"
    return f"{user} may not {what}; only an operator of the platform may"


def not_responding(url: str) -> Unreachable:
    """Return the error for a server that was connected and does not respond."""
    return Unreachable(
        f"the server at {without_password(url)} does not respond: check that it runs, and try again"
    )


def no_outcome(name: str, timeout_s: float, *, stored: bool) -> NoOutcome:
    """Return the error for a command whose outcome did not come within `timeout_s` seconds.

    `name` is the class name of the command. `stored` is whether the server has confirmed that the
    command is in the log.
    """
    if not stored:
        return NoOutcome(
            f"{name} may or may not be stored: the server did not confirm it within"
            f" {timeout_s:g} s; send it again, which does no harm"
        )
    return NoOutcome(
        f"{name} has no outcome after {timeout_s:g} s; it is stored in the log and will be"
        " processed once the services run"
    )
