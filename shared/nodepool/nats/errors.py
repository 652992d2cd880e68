"""What can go wrong between a program and the log; each error says what is stored for certain."""

STREAM_NOT_FOUND = 10059
"""The code of the JetStream API for a stream that is not there."""

SEALED_CODE = 10109
"""The code for a message to a stream that is sealed."""


class Unreachable(Exception):
    """No server answers; the message is one line that names the server and the remedy.

    `reason` is why the last attempt failed, as a few words.
    """

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(
            f"no NATS server answers at {address} ({reason}): start one with 'make run', or set"
            " NODEPOOL_URL"
        )
        self.reason = reason


class ConnectionClosed(Exception):
    """The connection is closed for good; only a new one helps. The message is why, as one line."""


class Conflict(Exception):
    """The condition of a publish does not hold: another writer came first. Nothing was stored."""


class InDoubt(Exception):
    """No reply came, so the message may or may not be stored; only reading the log can tell."""


class ServerRefusal(Exception):
    """The server refuses for a reason of its own, such as a full disk. Nothing was stored.

    `code` is the `err_code` of the JetStream API, 0 where the client refused before sending;
    `description` is what the server says.
    """

    def __init__(self, code: int, description: str) -> None:
        super().__init__(f"the server refuses: {description} ({code})")
        self.code = code
        self.description = description


class Denied(ServerRefusal):
    """The user of the connection may not publish or subscribe there; `description` says where."""


class Busy(ServerRefusal):
    """More is waiting to be stored than the server holds in memory; it takes more in a moment."""


class StreamChanged(Exception):
    """A stream is gone, or is no longer the one that was read."""


class LogChanged(StreamChanged):
    """The log is gone, is another one, or ends before what was read of it: start from its start."""


class HeadMissing(LogChanged):
    """The head of the log is cut, so that a program cannot know what it has not read of it."""
