"""The log of a service: its lines, and the files that they are written to."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodepool.contract.events import CWNodePoolScaledUp
from nodepool.host.lines import LINE_BYTES_MAX, line_of
from nodepool.host.logs import ServiceLog
from nodepool.host.settings import Settings, SettingsError
from support.proposals import proposed

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
TIME = "2026-01-01T12:00:01+00:00"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "quota.log"


def opened(path: Path, level: str = "info") -> ServiceLog:
    return ServiceLog("quota", Settings(log_file=str(path), log_level=level))


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# --- lines --------------------------------------------------------------------------------------


def test_the_line_of_a_processed_input_is_a_json_object_with_these_fields(path: Path) -> None:
    # given a command that was processed
    (item,) = proposed(PARENT).processed
    log = opened(path)

    # when it is logged
    log.message(item, "SetQuota", "stored", 0.0123, TIME)
    log.close()

    # then there is one line that says all about it
    assert lines(path) == [
        {
            "service": "quota",
            "event": "SetQuota",
            "level": "info",
            "position": 7,
            "id": "c7",
            "about": "acme/_/_",
            "outcome": "stored",
            "outputs": ["CommandAccepted", "QuotaSet"],
            "age_ms": 12.3,
            "timestamp": TIME,
            "correlation": "c7",
            "trace_id": TRACE,
        }
    ]


def test_the_line_of_a_failed_input_is_a_warning_with_the_field_and_the_cause(path: Path) -> None:
    # given a command that cannot be read
    (item,) = proposed(content=b'{"zone": "Z"}').processed
    log = opened(path)

    # when it is logged
    log.message(item, "SetQuota", "failure", 0.0, TIME)
    log.close()

    # then the line is a warning and says what is wrong
    (line,) = lines(path)
    assert (line["level"], line["outcome"]) == ("warning", "failure")
    assert (line["event"], line["id"], line["about"]) == ("SetQuota", "c7", "acme/_/_")
    assert (line["field"], line["cause"]) == ("instanceType", "is required")


def test_a_line_that_belongs_to_no_message_names_the_service_and_the_time(path: Path) -> None:
    # given a log
    log = opened(path)

    # when something is logged that belongs to no message
    log.logger.warning("session restarts", cause="no server")
    log.close()

    # then the line has the service, the level, the time and what was given
    (line,) = lines(path)
    assert line.pop("timestamp")
    assert line == {
        "service": "quota",
        "event": "session restarts",
        "level": "warning",
        "cause": "no server",
    }


@pytest.mark.parametrize(
    ("level", "written"),
    [
        ("debug", ["a", "b", "c"]),
        ("info", ["b", "c"]),
        ("warning", ["c"]),
        ("error", []),
    ],
)
def test_a_level_leaves_out_the_lines_below_it(path: Path, level: str, written: list[str]) -> None:
    # given a log of some level
    log = opened(path, level)

    # when lines of several levels are logged
    log.logger.debug("a")
    log.logger.info("b")
    log.logger.warning("c")
    log.close()

    # then those of the level and above are written, and messages count as info
    assert [line["event"] for line in lines(path)] == written
    assert log.shows_messages == (level in ("debug", "info"))


def test_a_single_line_is_written_out_at_once(path: Path) -> None:
    # given a log
    log = opened(path)

    # when a line is logged after which nothing is processed
    log.logger.warning("commit failed", cause="no room")

    # then it is in the file
    assert [line["event"] for line in lines(path)] == ["commit failed"]
    log.close()


def test_an_equal_warning_is_written_once_and_every_other_line_is_written(path: Path) -> None:
    # given a log
    log = opened(path)

    # when a warning comes again and again, with others between
    for number in range(3):
        log.logger.warning("cannot connect", cause="refused")
        log.logger.warning("cannot connect", cause=f"other {number}")
        log.logger.info("reconnected")
    log.close()

    # then it is written once
    written = [(line["event"], line.get("cause")) for line in lines(path)]
    assert written.count(("cannot connect", "refused")) == 1
    assert written.count(("reconnected", None)) == 3
    assert len(written) == 7


@dataclass(frozen=True)
class Long:
    """An exception that has much to say, and what its line has to keep."""

    error: Callable[[], Exception]
    type: str
    last: str


def _deep(number: int) -> None:
    if number:
        _deep(number - 1)
    raise ValueError("raised")


def raised(error: Callable[[], Exception]) -> Exception:
    """An exception as it is where it is logged."""
    try:
        raise error()
    except Exception as made:
        return made


def with_causes(number: int) -> Exception:
    """An exception with so many others that led to it."""
    error = _caught(lambda: _deep(40))
    for _ in range(number):
        try:
            raise KeyError("x" * 300) from error
        except KeyError as made:
            error = made
    return error


def _caught(act: Callable[[], None]) -> Exception:
    try:
        act()
    except Exception as error:
        return error
    raise AssertionError


def grouped(depth: int) -> Exception:
    """Exceptions in groups within each other."""
    error = _caught(lambda: _deep(2))
    for _ in range(depth):
        error = ExceptionGroup("group", [error, error])
    return error


@pytest.mark.parametrize(
    "long",
    [
        Long(lambda: ValueError("x" * 100_000), "ValueError", "raised"),
        Long(lambda: ValueError("\0" * 100_000), "ValueError", "raised"),
        Long(lambda: with_causes(0), "ValueError", "_deep"),
        Long(lambda: with_causes(50), "KeyError", "with_causes"),
        Long(lambda: grouped(12), "ExceptionGroup", "raised"),
    ],
    ids=["text", "escaped", "deep", "chain", "groups"],
)
def test_no_exception_makes_a_line_that_is_cut_in_two(path: Path, long: Long) -> None:
    # given a log, and an exception
    log = opened(path)

    # when it is logged with all its places
    log.logger.error(
        "crashed",
        exc_info=raised(long.error),
        cause="c" * 5_000,
        other=["o"] * 9_000,
        path=Path("p" * 9_000),
    )
    log.close()

    # then the line has no more bytes than are taken as one, and says what was raised, and where
    (content,) = path.read_bytes().splitlines()
    assert len(content) < 16 << 10
    line = json.loads(content)
    assert (line["event"], line["level"], line["service"]) == ("crashed", "error", "quota")
    first = line["exception"][0]
    assert first["exc_type"] == long.type
    assert first["exc_value"]
    assert first["frames"][-1]["name"] == long.last


class Bare:
    """Something of which the text is no text."""

    def __str__(self) -> str:
        return "a\udcff"


ENDLESS: dict[str, object] = {}
ENDLESS["within"] = ENDLESS


@pytest.mark.parametrize(
    ("field", "written"),
    [
        pytest.param("/tmp/\udcff.log", "/tmp/\\udcff.log", id="surrogate"),
        pytest.param(b"a\xffb", "a\\xffb", id="bytes"),
        pytest.param(["\ud800", b"\xc3"], ["\\ud800", "\\xc3"], id="list"),
        pytest.param({"k\udcff": {"in": "\udcff"}}, {"k\\udcff": {"in": "\\udcff"}}, id="key"),
        pytest.param(Bare(), "a\\udcff", id="object"),
        pytest.param("\U0001f600", "\U0001f600", id="text"),
    ],
)
def test_what_is_no_text_is_escaped(field: object, written: object) -> None:
    assert json.loads(line_of({"event": "e", "field": field})) == {"event": "e", "field": written}


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({f"key{number}": "x" for number in range(100_000)}, id="many keys"),
        pytest.param({"\0" * 100_000 + str(number): 1 for number in range(9)}, id="long keys"),
        pytest.param({"in": {"k" * 999 + str(number): "\0" for number in range(999)}}, id="within"),
        pytest.param({"in": [[["\0" * 99] * 9] * 9] * 9}, id="lists"),
        pytest.param({f"k{number}": [["\0" * 99] * 9] * 9 for number in range(99)}, id="both"),
        pytest.param({"number": 7**100_000}, id="number"),
        pytest.param({"bytes": b"\xff" * 100_000}, id="bytes"),
        pytest.param({"set": set(range(100_000))}, id="set"),
        pytest.param({"in": ENDLESS}, id="endless"),
    ],
)
def test_no_fields_make_a_line_that_is_cut_in_two(fields: dict[str, object]) -> None:
    # given fields of any size, between those that each line begins and ends with
    given = {"service": "quota", **fields, "event": "e", "level": "error"}

    # when they are written, then the line is as short as it may be, and those are in it
    content = line_of(given)
    assert len(content.encode()) <= LINE_BYTES_MAX
    line = json.loads(content)
    assert (line["service"], line["event"], line["level"]) == ("quota", "e", "error")
    assert len(line) > 3


def test_what_users_are_shown_in_any_script_fits_a_line(path: Path) -> None:
    # given a command whose outputs say much, in characters that take four bytes each
    (item,) = proposed(PARENT).processed
    event = CWNodePoolScaledUp(
        org="o", cluster="c", pool="p", before=1, after=2, message="\U0001f600" * 2_000
    )
    envelope = item.envelopes[0].model_copy(update={"data": event})
    log = opened(path)

    # when it is logged
    log.message(item._replace(envelopes=(envelope,) * 500), "SetQuota", "stored", 0.0123, TIME)
    log.close()

    # then the line has no more bytes than are taken as one, and still says what it is about
    (content,) = path.read_bytes().splitlines()
    assert len(content) < 16 << 10
    line = json.loads(content)
    assert (line["event"], line["position"], line["outcome"]) == ("SetQuota", 7, "stored")
    assert line["messages"][0].startswith("\U0001f600" * 10)


# --- files --------------------------------------------------------------------------------------


def test_a_full_log_file_is_followed_by_another_and_the_oldest_is_removed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a log whose files may be small only
    monkeypatch.setattr("nodepool.host.output.LOG_FILE_BYTES", 1_000)
    log = opened(path)

    # when much is logged
    (item,) = proposed().processed
    for _ in range(20):
        log.message(item, "SetQuota", "stored", 0.0, TIME)
        log.flush()
    log.close()

    # then there is a bounded number of files of a bounded size
    files = sorted(file.name for file in path.parent.iterdir())
    assert files == ["quota.log", "quota.log.1", "quota.log.2"]
    assert all(file.stat().st_size < 2_000 for file in path.parent.iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's always full device")
def test_a_full_disk_loses_lines_and_raises_nothing() -> None:
    # given a log on a device that takes nothing
    log = opened(Path("/dev/full"))

    # when much is logged
    (item,) = proposed().processed
    for _ in range(200):
        log.message(item, "SetQuota", "stored", 0.0, TIME)
        log.flush()

    # then nothing is raised, not at the end either
    log.close()


def test_a_log_file_that_cannot_be_opened_is_a_settings_error_that_names_it() -> None:
    # given a path in a folder that is not there
    # when a log is opened on it
    with pytest.raises(SettingsError) as error:
        opened(Path("/nowhere/quota.log"))

    # then the message is one line that names the file
    assert str(error.value) == (
        "cannot write a log to /nowhere/quota.log: No such file or directory"
    )


def test_without_a_log_file_lines_go_to_standard_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # given settings without a log file
    log = ServiceLog("quota", Settings())

    # when something is logged
    log.logger.info("leading")
    log.close()

    # then it is on standard output
    assert json.loads(capsys.readouterr().out)["event"] == "leading"
