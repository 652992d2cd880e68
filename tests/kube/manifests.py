"""The manifests under deploy/kubernetes as kubectl renders them."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WHOLE = "deploy/kubernetes"
MONITORING = "deploy/kubernetes/monitoring"
OVERLAY = """\
resources: [{whole}]
components: [{whole}/{component}]
"""
Document = Mapping[str, Any]
"""An object of the API as YAML has it."""


@dataclass(frozen=True, slots=True)
class Manifests:
    """The objects that a folder renders to.

    text: all of them, as `kubectl apply -f` takes them.
    documents: each of them.
    """

    text: str
    documents: Sequence[Document]

    def of_kind(self, *kinds: str) -> Iterator[Document]:
        """The objects of these kinds."""
        return (document for document in self.documents if document["kind"] in kinds)

    def named(self, kind: str, name: str) -> Document:
        """The object of this kind and name."""
        (document,) = (item for item in self.of_kind(kind) if item["metadata"]["name"] == name)
        return document


def rendered(folder: str = WHOLE) -> Manifests:
    """The objects of a folder; the test is skipped where there is no kubectl."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on PATH")
    command = ["kubectl", "kustomize", folder]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Manifests(done.stdout, [*yaml.safe_load_all(done.stdout)])


def overlay(folder: Path, component: str) -> str:
    """Writes an overlay of the whole with a component into a new folder; its path."""
    folder.mkdir()
    whole = os.path.relpath(ROOT / WHOLE, folder)
    (folder / "kustomization.yaml").write_text(
        OVERLAY.format(whole=whole, component=component), encoding="utf-8"
    )
    return str(folder)
