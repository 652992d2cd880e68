"""The errors between a program and the log; each says whether anything was stored."""

STREAM_NOT_FOUND = 10059
"""The code of the JetStream API for a stream that does not exist."""

SEALED_CODE = 10109
"""The code for a message to a stream that is sealed."""


class AccessError(Exception):
    """A file or value that cannot be used to connect; the text names it and the fix in one clause.

    field: the field of `Access` that is at fault.
    """

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


class ServerUnreachable(Exception):
    """No server replies; the message is one line that names the server and the remedy.

    `reason` says in a few words why the last attempt failed.
    """

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(
            f"no NATS server answers at {address} ({reason}): start one with 'make run', or set"
            " NODEPOOL_URL"
        )
        self.reason = reason


class ConnectionClosed(Exception):
    """The connection is closed for good; connect again. The message says why, as one line."""


class Conflict(Exception):
    """The condition of a publish does not hold: another writer came first. Nothing was stored."""


class InDoubt(Exception):
    """No reply came, so the message may or may not be stored; only reading the log can tell."""


class ServerRefusal(Exception):
    """The server refuses for a reason of its own, such as a full disk. Nothing was stored.

    `code` is the `err_code` of the JetStream API, or 0 if the client refused before sending;
    `description` is the server's text.
    """

    def __init__(self, code: int, description: str) -> None:
        super().__init__(f"the server refuses: {description} ({code})")
        self.code = code
        self.description = description


class Denied(ServerRefusal):
    """The user may not publish or subscribe to a subject, which `description` names."""


class Busy(ServerRefusal):
    """The server's queue of messages to store is full; retry in a moment."""


class StreamChanged(Exception):
    """The stream is gone, or another stream has taken its place."""


class LogChanged(StreamChanged):
    """The log is gone, was replaced, or lacks messages that were read: read it from its start."""


class HeadMissing(LogChanged):
    """The head of the log is cut off: messages that the program has not read are gone."""
