"""Selects from the lock what the image needs: `python -m image.locked requirements.lock EXTRA...`.

The lock holds the tools of developers as well. What is printed has the same versions and hashes.
"""

import re
import sys
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path

PROJECT = "nodepool (pyproject.toml)"
"""How the lock names this project where it says what requires a package."""
BUILD = "build"
"""Stands for what builds the wheel of this project, instead of what runs it."""


def requirements(project: dict[str, dict[str, object]], extras: Collection[str]) -> set[str]:
    """Return the names of what the project requires directly, with these extras, or to be built."""
    if BUILD in extras:
        return _names(project["build-system"]["requires"])
    table = project["project"]
    optional = table["optional-dependencies"]
    assert isinstance(optional, dict)
    return _names(table["dependencies"]).union(*(_names(optional[extra]) for extra in extras))


def _names(lines: object) -> set[str]:
    assert isinstance(lines, list)
    return {_normal(re.split(r"[\[<>=!~; ]", line, maxsplit=1)[0]) for line in lines}


def _normal(name: str) -> str:
    """Return the one spelling of a name, see https://peps.python.org/pep-0503/#normalized-names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def select(lock: str, wanted: Collection[str]) -> str:
    """Return the part of a lock with these packages and whatever they require.

    Raises KeyError for a package that the lock does not have.
    """
    blocks = dict(_blocks(lock))
    chosen = {_normal(name) for name in wanted}
    if missing := chosen - blocks.keys():
        raise KeyError(f"requirements.lock has no {', '.join(sorted(missing))}: run `make lock`")
    while True:
        added = {name for name in blocks.keys() - chosen if _required_by(blocks[name]) & chosen}
        if not added:
            return "".join(block for name, block in blocks.items() if name in chosen)
        chosen |= added


def _blocks(lock: str) -> Iterator[tuple[str, str]]:
    """Each package of a lock: its name, and its lines."""
    for block in re.split(r"(?m)^(?=[A-Za-z0-9])", lock):
        name, pinned, _ = block.partition("==")
        if pinned:
            yield _normal(name), block


def _required_by(block: str) -> set[str]:
    """Return the packages that require a package: the lines of its comment `# via`."""
    _, _, via = block.partition("# via")
    return {_normal(line.strip("# ")) for line in via.splitlines() if line.strip("# ")}


def main() -> None:
    """Print the selected part of the lock that is named first; the extras follow."""
    lock, *extras = sys.argv[1:]
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
    text = Path(lock).read_text(encoding="utf-8")
    sys.stdout.write(select(text, requirements(project, extras)))


if __name__ == "__main__":
    main()
