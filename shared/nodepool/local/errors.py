"""The exceptions of running the control plane on one machine."""


class ServerError(Exception):
    """A nats-server cannot be found or started; the text is the cause and the fix, in one line."""


class UpError(Exception):
    """The control plane cannot run on this machine; the text is the cause, in one line."""
