"""Exit codes, and how an error is reported and which of them it ends in."""

from nodepool.cli.output import print_error

DONE, REFUSED, USAGE, TIMEOUT, UNREACHABLE = range(5)


class CliError(Exception):
    """An error that the command line finds itself; its text is one line."""


def report(error: Exception, about: str = "") -> int:
    """Prints an error as one line and returns its exit code; raises one that is a bug.

    `about` names what the error is about, where its own text does not.
    """
    # Imported here because it loads the whole client, which `--help` does without.
    from nodepool.client import ClientError, NoOutcome, TimedOut, Unreachable
    from nodepool.client.manifests import ManifestError

    if not isinstance(error, ClientError | ManifestError | CliError):
        raise error
    print_error(f"{about}: {error}" if about else str(error))
    match error:
        case NoOutcome() | TimedOut():
            return TIMEOUT
        case Unreachable():
            return UNREACHABLE
    return REFUSED
