"""What libraries and Python say of a service, as lines of its log; and how long a line may be."""

import json
import logging
import warnings
from pathlib import Path

import pytest

from nodepool.host.foreign_logs import foreign_logs
from nodepool.host.logs import OUTPUTS_SHOWN, TEXT_MAX, ServiceLog
from nodepool.host.settings import Settings
from support.proposals import proposed

SECRET = "nats://services:hunter2@bus:4222"
LINE_MAX = 16 << 10


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "quota.log"


@pytest.fixture
def log(path: Path) -> ServiceLog:
    return ServiceLog("quota", Settings(log_file=str(path)))


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def fail_with(address: str) -> None:
    """Raises an error from a function that has a secret among its variables."""
    raise RuntimeError("no\nroute" if address else "")


def test_what_a_library_logs_is_one_line_of_json(log: ServiceLog, path: Path) -> None:
    # given a service at work
    with foreign_logs(lambda: log.logger):
        # when a library logs an error of several lines, and less important things
        logging.getLogger("asyncio").error("Task failed\n  task: %s", 7)
        logging.getLogger("asyncio").info("nothing to see")

    # then there is a line of the error, of the same fields as all others
    log.close()
    (line,) = lines(path)
    assert line.pop("timestamp")
    assert line == {
        "service": "quota",
        "event": "library",
        "level": "error",
        "logger": "asyncio",
        "cause": "Task failed task: 7",
    }


def test_a_warning_of_python_is_a_line_too(log: ServiceLog, path: Path) -> None:
    # given a service at work
    with foreign_logs(lambda: log.logger), warnings.catch_warnings():
        warnings.simplefilter("default")
        logging.captureWarnings(True)
        # when something is used that is to go
        warnings.warn("use another one", DeprecationWarning, stacklevel=1)

    # then a line says so
    log.close()
    (line,) = lines(path)
    assert (line["level"], line["logger"]) == ("warning", "py.warnings")
    assert "DeprecationWarning: use another one" in str(line["cause"])


def test_an_exception_is_a_line_with_its_places_and_without_variables(
    log: ServiceLog, path: Path
) -> None:
    # given a service at work
    with foreign_logs(lambda: log.logger):
        # when an exception comes from where an address with a password is
        try:
            fail_with(SECRET)
        except RuntimeError:
            logging.getLogger("asyncio").exception("unhandled")

    # then its one line has the places, and not the password
    log.close()
    (text,) = path.read_text().splitlines()
    ((exception,), line) = json.loads(text)["exception"], json.loads(text)
    assert (exception["exc_type"], exception["exc_value"]) == ("RuntimeError", "no\nroute")
    assert [frame["name"] for frame in exception["frames"]][-1] == "fail_with"
    assert line["cause"] == "unhandled"
    assert "hunter2" not in text


def test_an_exporter_that_tries_again_says_nothing_until_it_gives_up(
    log: ServiceLog, path: Path
) -> None:
    # given a service that exports spans
    exporter = logging.getLogger("opentelemetry.exporter")
    with foreign_logs(lambda: log.logger):
        # when the exporter tries several times, and then gives up
        for seconds in range(5):
            exporter.warning("retrying in %s", seconds)
        exporter.error("failed")

    # then there is one line
    log.close()
    assert [line["cause"] for line in lines(path)] == ["failed"]


def test_nothing_is_taken_any_more_at_the_end(log: ServiceLog, path: Path) -> None:
    # given a service that has ended
    with foreign_logs(lambda: log.logger):
        pass

    # when a library logs
    logging.getLogger("asyncio").error("late")

    # then it is no line of that service
    log.close()
    assert lines(path) == []


def test_no_line_is_longer_than_docker_takes(log: ServiceLog, path: Path) -> None:
    # given an input with more outputs than any, and a failure of a very long text
    (item,) = proposed().processed
    (broken,) = proposed(content=b"[" + b'"\x01", ' * 20_000 + b"1]").processed
    many = item._replace(envelopes=item.envelopes[:1] * 900)

    # when they are logged, and a warning of a very long text
    log.message(many, "SetQuota", "stored", 0.0, "now")
    log.message(broken, "SetQuota", "failure", 0.0, "now")
    log.logger.warning("bus error", cause="\x01" * 100_000)
    log.close()

    # then each line has its end, and says what was left out
    assert [len(text) < LINE_MAX for text in path.read_text().splitlines()] == [True] * 3
    first, _, last = lines(path)
    assert isinstance(first["outputs"], list)
    assert (len(first["outputs"]), first["outputs_left_out"]) == (OUTPUTS_SHOWN, 800)
    assert len(str(last["cause"])) == TEXT_MAX + 1
