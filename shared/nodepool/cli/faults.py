"""The exit codes, and which fault ends in which."""

from nodepool.cli.output import complain

DONE, REFUSED, USAGE, TIMEOUT, UNREACHABLE = range(5)


def failed(error: Exception, about: str = "") -> int:
    """Prints a fault as one line and returns its exit code; raises one that is a bug of ours.

    `about` says what it is about, where the fault itself does not.
    """
    # Only here: they bring in the whole client, which `--help` does without.
    from nodepool.client import ClientError, NoOutcome, TimedOut, Unreachable
    from nodepool.client.manifests import ManifestError

    if not isinstance(error, ClientError | ManifestError | Refusal):
        raise error
    complain(f"{about}: {error}" if about else str(error))
    match error:
        case NoOutcome() | TimedOut():
            return TIMEOUT
        case Unreachable():
            return UNREACHABLE
    return REFUSED


class Refusal(Exception):
    """Something the command line itself cannot do; the text is one line."""
