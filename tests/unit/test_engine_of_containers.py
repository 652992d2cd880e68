"""What the tests of containers take of a machine: its engine, its Compose and its images."""

from pathlib import Path

import pytest

from containers import engine, images
from containers.stand_ins import Missing


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in which programs are looked for; there is no Compose in the cache."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(engine, "BUILT", tmp_path / "not there")
    return tmp_path


def program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("version", "taken"),
    [("1.29.2", []), ("v2.19.1", []), ("2.20.0", ["docker-compose"]), ("v5.0", ["docker-compose"])],
)
def test_compose_is_taken_where_it_is_as_new_as_the_page_says(
    programs: Path, version: str, taken: list[str]
) -> None:
    program(programs / "docker-compose", f"echo {version}")

    assert engine.compose.__wrapped__() == taken


def test_without_a_compose_there_is_none(programs: Path) -> None:
    assert engine.compose.__wrapped__() == []


def test_a_registry_that_does_not_answer_is_one_from_which_nothing_is_pulled(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(programs / "docker", '[ "$1" = pull ] && exec /bin/sleep 30; exit 1')
    monkeypatch.setattr(images, "PULL_S", 0.3)

    with pytest.raises(Missing, match=r"^any:1 cannot be pulled, and has no stand-in$"):
        images._image("ANY_IMAGE", "any:1")
