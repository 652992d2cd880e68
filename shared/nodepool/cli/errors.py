"""Exit codes, and how each error is reported and mapped to an exit code."""

DONE, REFUSED, USAGE, TIMEOUT, UNREACHABLE = range(5)


class CliError(Exception):
    """An error that the command line detects itself; its text is one line.

    code: the exit code.
    """

    code = REFUSED


def report(error: Exception, about: str = "") -> int:
    """Print an error as one line and return its exit code; raise an error that is a bug.

    `about` names the subject of the error, if the text of the error does not.
    """
    # Imported here because it loads the whole client, which `--help` does not need.
    from nodepool.cli.output import print_error

    code = _code(error)
    if code is None:
        raise error
    print_error(f"{about}: {error}" if about else str(error))
    return code


def _code(error: Exception) -> int | None:
    """Return the exit code of an error; None for a bug."""
    if isinstance(error, CliError):
        return error.code
    from nodepool.client.errors import ClientError, NoOutcome, TimedOut, Unreachable

    match error:
        case NoOutcome() | TimedOut():
            return TIMEOUT
        case Unreachable():
            return UNREACHABLE
        case ClientError():
            return REFUSED
    # Imported last, because it loads the models of all commands, and reading never raises it.
    from nodepool.client.manifests import ManifestError

    return REFUSED if isinstance(error, ManifestError) else None
