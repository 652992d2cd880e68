"""When the archiver closes a segment, its proofs and settings, and places without an archive."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.closing import RATION, RATION_S, Filling, Limits, Ration, is_full, is_quiet
from archiver.host.settings import BOUNDS, read_archiver, variable_of
from archiver.proof import Proof
from nodepool.cli.app import run
from nodepool.host.settings import OTHERS, SettingsError


def test_a_segment_closes_by_size_by_age_and_in_quiet() -> None:
    limits = Limits(bytes=100, age_s=60, quiet_s=5)
    filling = Filling().add(10, 1.0).add(10, 3.0)

    assert not is_full(filling, limits, 60.9)
    assert is_full(filling, limits, 61.0)
    assert is_full(filling.add(80, 4.0), limits, 4.0)
    assert not is_quiet(filling, limits, 7.9)
    assert is_quiet(filling, limits, 8.0)


@given(st.floats(0, 1e9))
def test_an_empty_segment_never_closes(now: float) -> None:
    assert not is_full(Filling(), Limits(), now)
    assert not is_quiet(Filling(), Limits(), now)


@given(st.lists(st.floats(0.1, 600), max_size=300))
def test_segments_that_close_in_quiet_are_rationed(pauses: list[float]) -> None:
    ration, now, taken = Ration(), 0.0, 0
    for pause in pauses:
        now += pause
        after = ration.take(now)
        if after is not None:
            ration, taken = after, taken + 1

    assert taken <= RATION + now / RATION_S


def test_a_cell_that_is_seldom_busy_is_never_rationed() -> None:
    ration = Ration()
    for minute in range(1_000):
        after = ration.take(minute * RATION_S)
        assert after is not None
        ration = after


# What was read back.


def test_a_position_is_proven_once_all_before_it_was_read_back() -> None:
    # given segments that were read back as they were stored, in an archive that had others
    proof = Proof().add(101, 150).add(151, 180)
    assert proof.position == 0

    # when the whole archive is read back, as it was in between
    proof = proof.reach(150)

    # then all of it is proven, and what is stored next
    assert proof.position == 180
    proof = proof.add(181, 190)
    assert proof.position == 190
    # and what follows after segments of another archiver is not
    assert proof.add(300, 310).position == 190


def test_a_segment_that_is_damaged_later_proves_nothing_more() -> None:
    # given an archive that was read back as it was stored
    proof = Proof().reach(0).add(1, 50).add(51, 100)
    assert proof.position == 100

    # when a fault is found in the second segment
    proof = proof.reach(50, faults=1)

    # then nothing behind it is proven, whatever is stored next
    assert proof.position == 50
    assert proof.add(101, 150).position == 50


def test_an_archive_whose_start_is_damaged_proves_nothing_more() -> None:
    assert replace(Proof().add(101, 150), whole=40).position == 40


# Settings.


def test_the_settings_are_known_to_other_services_and_bounded() -> None:
    variables = {variable_of(name).removeprefix("NODEPOOL_") for name in BOUNDS}

    settings = read_archiver({"NODEPOOL_ARCHIVE": "/a", "NODEPOOL_ARCHIVE_QUIET_SECONDS": "7"})

    known = {name for name in OTHERS if name.startswith(("ARCHIVE", "TRIM"))}
    assert {"ARCHIVE", "TRIM", *variables} == known
    assert not settings.trims
    assert settings.limits == Limits(quiet_s=7)
    assert settings.list_settings()["archive"] == "/a"


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({}, "NODEPOOL_ARCHIVE is not set; it names the place"),
        ({"NODEPOOL_ARCHIVE": "a", "NODEPOOL_ARCHIVE_QUIET_SECONDS": "0"}, "from 1 to 3600"),
        ({"NODEPOOL_ARCHIVE": "a", "NODEPOOL_ARCHIVE_SEGMENT_BYTES": "1GB"}, "from 1 to 536870912"),
        (
            {"NODEPOOL_ARCHIVE": "a", "NODEPOOL_TRIM": "yes"},
            "is 'yes'; it must be on or off",
        ),
        ({"NODEPOOL_ARCHIVE": "a", "NODEPOOL_TRIM_DELAY_SECONDS": "0"}, "from 1 to 86400"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(given: dict[str, str], fault: str) -> None:
    with pytest.raises(SettingsError, match=fault):
        read_archiver(given)


# Reading an archive back.


@pytest.mark.parametrize(
    ("place", "code", "said"),
    [
        ("nowhere", 1, "nowhere: there is none: it has no log.json"),
        ("file/archive", 4, "file/archive: cannot read log.json: Not a directory"),
        ("ftp://there", 4, "archive ftp://there: name a folder, or a URL that begins with file://"),
    ],
)
def test_a_place_without_an_archive_is_named(
    place: str,
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()

    assert run(["log", "verify", "--archive", place]) == code
    assert said in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
