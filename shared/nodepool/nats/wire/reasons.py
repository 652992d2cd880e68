"""Errors of a connection, described in a few words for a person."""

import os
import ssl

from nodepool.nats.wire.errors import AccessError
from nodepool.nats.wire.library import NatsError, StaleConnectionError, UnexpectedEOF


def reason_of(error: Exception) -> str:
    """Return the reason for an error, without the address that the error is about."""
    match error:
        case UnexpectedEOF():
            return "the server closed the connection"
        case StaleConnectionError():
            return "the server does not reply"
        case ssl.SSLCertVerificationError(verify_message=reason):
            return f"its certificate is not trusted: {reason}"
        case ssl.SSLError(reason=str(reason)):
            return f"TLS failed: {reason.replace('_', ' ').lower()}"
        case TimeoutError():
            return "no reply in time"
        case OSError(errno=int(number)) if number > 0:
            return os.strerror(number)
        case OSError(strerror=str(reason)):
            return reason
        case NatsError():
            return _of_server(str(error).removeprefix("nats: ").strip("'")) or type(error).__name__
    return str(error) if isinstance(error, AccessError) else f"{type(error).__name__}: {error}"


def _of_server(text: str) -> str:
    if text.lower() == "authorization violation":
        return "the server refuses the user, password or credentials"
    return text
