"""No text of an object, a file or a service controls the terminal that it is printed on."""

import ast
import io
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nodepool.cli
from nodepool.cli.commands.diff import _lines
from nodepool.cli.description import format_description
from nodepool.cli.formats import parse_format
from nodepool.cli.names import KINDS
from nodepool.cli.options import DryRun, Output
from nodepool.cli.output import print_error, print_text
from nodepool.cli.sources import Item
from nodepool.cli.view import View
from nodepool.local.supervisor import last_line

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
COLOUR = re.compile("\x1b\\[(?:31|33|0)m")
HOSTILE = st.text(
    st.sampled_from("\x1b\x07\x00\r\x9b\u202e]0;ab[31m\n\t"), min_size=1, max_size=12
).map(lambda text: f"\x1b]0;{text}\x07")
FORMATS = (
    "",
    "wide",
    "json",
    "yaml",
    "name",
    "jsonpath={.items[*].metadata.name} {.items[*].metadata.labels} {.items[*].spec}",
    "custom-columns=NAME:.metadata.name,ALL:.spec,LABELS:.metadata.labels",
)


class Terminal(io.StringIO):
    """A terminal that keeps what is printed on it."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """What was printed since the last call, without the colours of a table."""
    monkeypatch.setenv("TERM", "xterm")
    shown: list[Terminal] = []

    def begin() -> str:
        text = shown[-1].getvalue() if shown else ""
        shown.append(Terminal())
        monkeypatch.setattr("sys.stdout", shown[-1])
        monkeypatch.setattr("sys.stderr", shown[-1])
        return COLOUR.sub("", text)

    begin()
    return begin


def hostile_object(text: str) -> dict[str, object]:
    return {
        "kind": "NodePool",
        "zone": text,
        "instanceType": text,
        "org": text,
        "metadata": {"name": text, "labels": {text: text}, "annotations": {text: text}},
        "spec": {"instanceType": text, "targetNodes": text, text: [text, {text: text}]},
        "involvedObject": {"kind": text, "name": text},
        "message": text,
        "reason": text,
        "status": {"state": text, "conditions": [{"type": "Validated", "reason": text}]},
    }


OFTEN = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])


@OFTEN
@given(text=HOSTILE)
def test_no_type_and_no_format_controls_a_terminal(text: str, terminal: Callable[[], str]) -> None:
    document = hostile_object(text)
    terminal()
    for kind in KINDS:
        for form in map(parse_format, FORMATS):
            view = View(kind, format=form, show_labels=True, label_columns=[text])
            if form.is_whole:
                form.print_whole([document], single=False)
                form.print_one_of_many(document)
            elif form.form == "name":
                view.print_names([document])
            else:
                view.print_items(view.table(), [Item(text, document, (text, text))])
            Output(form, DryRun.NONE).print_line(text, text)
            Output(form, DryRun.NONE).print_objects([document])
    print_text(format_description(document, None, datetime.now(UTC)))
    print_text("\n".join(_lines(text, [text], [f"{text} "])))
    print_error(text)

    assert CONTROL.findall(terminal()) == []


def test_a_pipe_gets_the_values_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    parse_format("jsonpath={.metadata.name}").print_whole([hostile_object("\x1b[2J")], single=True)

    assert capsys.readouterr().out == "\x1b[2J"


def test_the_last_words_of_a_service_control_no_terminal(tmp_path: Path) -> None:
    (tmp_path / "quota.err").write_text("Traceback\nError: \x1b]0;x\x07\u202e\n\n")

    assert last_line(tmp_path / "quota.err") == "Error: ?]0;x??"


def test_every_command_prints_by_the_functions_that_make_texts_visible() -> None:
    folder = Path(str(nodepool.cli.__file__)).parent
    printing = {
        path.name
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if ast.unparse(node) in ("click.echo", "sys.stdout.write", "print", "click.secho")
    }

    assert printing == {"output.py"}
