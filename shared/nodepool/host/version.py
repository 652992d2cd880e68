"""The version of this program."""

from importlib.metadata import PackageNotFoundError, version


def version_of() -> str:
    """The version of this program; "unknown" for one that is run from its sources."""
    try:
        return version("nodepool")
    except PackageNotFoundError:
        return "unknown"
