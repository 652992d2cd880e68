"""The dashboards have the types that Grafana 11, 12 and 13 publish for theirs."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from dashboards.pages import FOLDER
from support.node_tools import TOOLS, installed

MISTAKES = (
    # A color mode that there is not.
    ('"colorMode": "background"', '"colorMode": "ground"'),
    # An option of another type of panel.
    ('"graphMode": "area"', '"rowHeight": 1'),
    # A number where there is a text.
    ('"title": "NodePools off target"', '"title": 1'),
    # A field that queries lack.
    ('"exemplar": false', '"exemplars": false'),
)
"""Changes of a dashboard, each of which is an error."""


@pytest.fixture(scope="module")
def modules() -> Path:
    """The folder with Grafana's types and the compiler, installed from their lock file."""
    return installed("grafana") / "node_modules"


def errors(modules: Path, release: int, folder: Path) -> Sequence[str]:
    """What the compiler says of the dashboards in a folder, with the types of a release."""
    schema = modules / f"grafana-schema-{release}"
    entry = next(
        path
        for path in (schema / "dist/types/index.d.ts", schema / "dist/esm/index.d.mts")
        if path.is_file()
    )
    options = {
        "strict": True,
        "noEmit": True,
        "skipLibCheck": True,
        "target": "es2022",
        "module": "esnext",
        "moduleResolution": "bundler",
        "types": [],
        "paths": {"@grafana/schema": [str(entry)], "@grafana/schema/*": [f"{schema}/*"]},
    }
    config = {"compilerOptions": options, "include": ["*.ts"]}
    (folder / "tsconfig.json").write_text(json.dumps(config))
    compiler = modules / "typescript" / "bin" / "tsc"
    command = ["node", str(compiler), "--project", str(folder), "--pretty", "false"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return [line for line in done.stdout.splitlines() if not line.startswith(" ")]


def typed(dashboard: str) -> str:
    """A program that is one dashboard in Grafana's types."""
    model = TOOLS / "grafana" / "model"
    return f"import type {{ Dashboard }} from '{model}';\nexport const it: Dashboard = {dashboard}"


@pytest.mark.parametrize("release", [11, 12, 13])
def test_every_dashboard_has_the_types_of_a_release(
    modules: Path, release: int, tmp_path: Path
) -> None:
    for file in FOLDER.glob("*.json"):
        (tmp_path / f"{file.stem}.ts").write_text(typed(file.read_text()))
    assert errors(modules, release, tmp_path) == []


def test_the_types_refuse_each_kind_of_mistake(modules: Path, tmp_path: Path) -> None:
    # given copies of a dashboard with a mistake each
    dashboard = (FOLDER / "nodepool-fleet.json").read_text()
    for number, (right, wrong) in enumerate(MISTAKES):
        assert right in dashboard
        (tmp_path / f"{number}.ts").write_text(typed(dashboard.replace(right, wrong, 1)))

    # when they are checked
    found = errors(modules, 13, tmp_path)

    # then each has an error
    assert [line.partition("(")[0] for line in found] == [
        f"{number}.ts" for number in range(len(MISTAKES))
    ]
