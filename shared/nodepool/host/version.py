"""The version of this program."""

from importlib.metadata import PackageNotFoundError, version


def version_of() -> str:
    """Return the version of this program; "unknown" if it is run from its sources."""
    try:
        return version("nodepool")
    except PackageNotFoundError:
        return "unknown"
