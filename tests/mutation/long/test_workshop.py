"""A copy of a repository, changed and tested."""

from pathlib import Path

import pytest

pytest.importorskip("libcst", reason="mutmut is locked for Python 3.11 and 3.12")

from mutation.mutants import Mutant
from mutation.report import Report
from mutation.trace import Trace
from mutation.workshop import Fate, Unusable, open_workshop

MODULE = Path("parts/small.py")
SOURCE = "def small(n):\n    return n < 10\n\ndef large(n):\n    return n > 90\n"
ENDLESS = SOURCE.replace("    return n < 10", "    while True:\n        pass")
TEST = """
from parts.small import large, small

def test_a_small_number():
    assert small(1)

def test_a_large_number():
    assert large(91)
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\npythonpath = ['.']\n")
    (tmp_path / "parts").mkdir()
    (tmp_path / MODULE).write_text(SOURCE)
    (tmp_path / "test_small.py").write_text(TEST)
    return tmp_path


def test_a_change_that_fails_a_test_is_killed_and_others_survive(repository: Path) -> None:
    mutants = [Mutant(MODULE, SOURCE, SOURCE.replace("n <", f"n {sign}")) for sign in (">", "<=")]

    with open_workshop(repository) as workshop:
        trace = workshop.trace(["test_small.py"], ["parts"])
        fates = [workshop.try_out(mutant, trace.stages(mutant, [])) for mutant in mutants]

    assert fates == [Fate.KILLED, Fate.SURVIVED]


def test_a_trace_leaves_no_bytecode_that_a_mutant_could_be_taken_for(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)

    with open_workshop(repository) as workshop:
        workshop.trace(["test_small.py"], ["parts"])
        left = [*workshop.root.rglob("*.pyc")]

    assert left == []


def test_a_change_has_the_tests_that_run_its_line(repository: Path) -> None:
    with open_workshop(repository) as workshop:
        trace = workshop.trace(["test_small.py"], ["parts"])

    small, large = "test_small.py::test_a_small_number", "test_small.py::test_a_large_number"
    assert list(trace.seconds) == [small, large]
    assert trace.stages(Mutant(MODULE, SOURCE, SOURCE.replace("<", ">")), []) == [[small]]
    assert trace.stages(Mutant(MODULE, SOURCE, SOURCE.replace("90", "91")), []) == [[large]]


def test_the_tests_of_a_part_come_first_and_others_as_far_as_there_is_time() -> None:
    names = ("unit::slow", "flow::slow", "flow::fast", "unit::fast")
    trace = Trace(dict(zip(names, (50.0, 50.0, 2.0, 1.0), strict=True)), {str(MODULE): {2: names}})
    mutant = Mutant(MODULE, SOURCE, SOURCE.replace("<", ">"))

    assert trace.stages(mutant, ["unit"]) == [["unit::fast", "unit::slow"], ["flow::fast"]]
    assert trace.stages(mutant, []) == [["unit::fast", "flow::fast"]]


def test_an_endless_loop_is_ended(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mutation.workshop.MUTANT_MAX_S", 3.0)

    with open_workshop(repository) as workshop:
        fate = workshop.try_out(Mutant(MODULE, SOURCE, ENDLESS), [["test_small.py"]])

    assert fate is Fate.TIMED_OUT


def test_tests_that_fail_without_a_change_say_nothing(repository: Path) -> None:
    (repository / MODULE).write_text(SOURCE.replace("<", ">"))

    with open_workshop(repository) as workshop, pytest.raises(Unusable, match="assert small"):
        workshop.trace(["test_small.py"], ["parts"])


def test_a_module_that_cannot_be_imported_is_noticed(repository: Path) -> None:
    with open_workshop(repository) as workshop:
        tests = ["test_small.py::test_a_small_number"]
        fate = workshop.try_out(Mutant(MODULE, SOURCE, "1 / 0\n"), [tests])

    assert fate is Fate.KILLED


def test_a_file_without_tests_says_nothing(repository: Path) -> None:
    with open_workshop(repository) as workshop, pytest.raises(Unusable, match="no tests were run"):
        workshop.try_out(Mutant(MODULE, SOURCE, SOURCE), [["parts/small.py"]])


def test_the_repository_stays_as_it_is_and_the_copy_goes(repository: Path) -> None:
    with open_workshop(repository) as workshop:
        workshop.try_out(Mutant(MODULE, SOURCE, "1 / 0\n"), [["test_small.py"]])
        names = sorted(path.name for path in workshop.root.iterdir())
        text = (workshop.root / MODULE).read_text()

    assert [names, text] == [["parts", "pyproject.toml", "test_small.py"], SOURCE]
    assert not workshop.root.parent.exists()
    assert [(repository / MODULE).read_text(), *repository.rglob("__pycache__")] == [SOURCE]


def test_a_report_counts_each_package_and_shows_what_survived() -> None:
    report = Report(equivalent=1)
    killed, survived = (Mutant(Path("a/b.py"), "x = 1\n", f"x = {n}\n") for n in (2, 3))
    late = Mutant(Path("c/d.py"), "x = 1\n", "x = 4\n")

    report.add(killed, Fate.KILLED)
    report.add(survived, Fate.SURVIVED)
    report.add(late, Fate.TIMED_OUT)

    lines = [" ".join(line.split()) for line in "\n".join(report.lines()).splitlines()]
    assert "+x = 3" in lines
    assert lines[-4:-1] == ["a 2 1 0 50.0%", "c 1 0 1 100.0%", "all 3 1 1 66.7%"]
    assert report.share == pytest.approx(2 / 3)
