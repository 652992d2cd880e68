"""The version of this program."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def version_of() -> str:
    """Return the version of this program; "unknown" if it is run from its sources."""
    # Each turn of a replica asks for the version, and to read it from its file takes 0.3 ms.
    try:
        return version("nodepool")
    except PackageNotFoundError:
        return "unknown"
