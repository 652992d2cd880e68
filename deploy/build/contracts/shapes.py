"""Writes the shapes of all states, as snapshots of this release have them: `make shapes`.

The file belongs to the last release, so it is written when a release is made, and not before.
"""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path

from contracts.services import load_services
from nodepool.engine.schema import Schema
from nodepool.engine.snapshot import schema_of

ROOT = Path(__file__).parents[3]
SHAPES = ROOT / "tests" / "unit" / "shapes.json"


def read_shapes() -> tuple[str, Mapping[str, Schema]]:
    """Return the version of the last release, and the schema of each service's snapshots."""
    found = json.loads(SHAPES.read_text(encoding="utf-8"))
    return found["release"], found["services"]


def text() -> str:
    """Return the content of the file for this release: a line for each class."""
    services = sorted(load_services(), key=lambda service: service.name)
    parts = []
    for service in services:
        classes = map(json.dumps, schema_of(type(service.initial)))
        lines = ",\n      ".join(classes)
        parts.append(f"{json.dumps(service.name)}: [\n      {lines}\n    ]")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    release = json.dumps(project["version"])
    joined = ",\n    ".join(parts)
    return f'{{\n  "release": {release},\n  "services": {{\n    {joined}\n  }}\n}}\n'


if __name__ == "__main__":
    SHAPES.write_text(text(), encoding="utf-8")
