"""The formats of `-o`, what is printed in them, and what becomes of output that cannot be."""

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from nodepool.cli.formats import parse_format
from nodepool.cli.output import as_json, as_yaml

POOLS = [
    {"kind": "NodePool", "metadata": {"name": "a"}, "spec": {"n": 1, "types": ["x", "y"]}},
    {"kind": "NodePool", "metadata": {"name": "b"}, "spec": {"n": 2}},
]


def test_a_template_is_printed_for_the_list_or_for_the_one_object() -> None:
    many = parse_format("jsonpath={.items[*].metadata.name}")
    one = parse_format("jsonpath={.metadata.name}")

    assert many.whole(POOLS, single=False) == "a b"
    assert one.whole(POOLS[:1], single=True) == "a"


def test_custom_columns_show_a_missing_field_as_kubectl_does() -> None:
    form = parse_format("custom-columns=NAME:.metadata.name,X:.spec.types[0],ALL:{.spec.types[*]}")

    table = form.custom_table()

    assert table.lines(map(form.custom_cells, POOLS)) == [
        "NAME   X        ALL",
        "a      x        x,y",
        "b      <none>   <none>",
    ]


def test_templates_and_columns_are_read_from_files(tmp_path: Path) -> None:
    template, columns = tmp_path / "template", tmp_path / "columns"
    template.write_text("{range .items[*]}{.metadata.name}\n{end}")
    columns.write_text("NAME N\n.metadata.name .spec.n\n")

    form = parse_format(f"custom-columns-file={columns}")

    assert parse_format(f"jsonpath-file={template}").whole(POOLS, single=False) == "a\nb\n"
    assert form.custom_cells(POOLS[1]) == ["b", "2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("xml", "--output: 'xml' is not a format; use json, yaml, wide, name, jsonpath=TEMPLATE"),
        ("yml", "--output: 'yml' is not a format; did you mean yaml?"),
        ("json=x", "--output: 'json=x' is not a format; did you mean json?"),
        ("jsonpath", "--output: jsonpath needs a value; write -o jsonpath='{.items"),
        ("custom-columns=", "--output: custom-columns needs a value; write -o custom-columns=NAME"),
        ("custom-columns=NAME", "--output: custom-columns: 'NAME' is not TITLE:PATH, such as"),
        ("custom-columns=N:.a[", "--output: custom-columns: '.a[': its end at character 4 is not"),
        ("jsonpath={.a", "--output: jsonpath: '{.a': its end at character 4 is not the '}'"),
        ("go-template={{.x}}", "--output: go-template is not supported; use jsonpath, as in"),
        ("jsonpath-file=nosuch", "--output: jsonpath-file: nosuch: No such file or directory"),
    ],
)
def test_another_format_is_a_usage_error_that_names_the_remedy(text: str, message: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        parse_format(text)

    assert caught.value.message.startswith(message)


def test_a_template_that_does_not_fit_the_objects_is_a_usage_error() -> None:
    with pytest.raises(click.UsageError, match=r"jsonpath: index 7 is out of bounds"):
        parse_format("jsonpath={.items[7]}").whole(POOLS, single=False)


def test_json_and_yaml_hold_no_control_characters_and_the_same_values() -> None:
    value = {"a": "x\x1b[31m\x7f\x9b31m\u202e\ttab", "b": "é"}

    for text, read in ((as_json(value), json.loads), (as_yaml(value), yaml.safe_load)):
        assert not any(character in text for character in "\x1b\x7f\x9b\u202e")
        assert read(text) == value
    assert as_yaml({"b": "é"}) == "b: é"


# Output that cannot be written.


def started(arguments: str, output: int | None) -> tuple[int, str]:
    """Exit code and error output of `nodepool`, with a descriptor as its output or none at all."""
    command = [sys.executable, "-m", "nodepool.cli", *arguments.split()]
    if output is None:
        command = ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *command]
    environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        command, env=environment, check=False, stdout=output, stderr=subprocess.PIPE, text=True
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("arguments", ["version", "--help", "get --help"])
def test_a_full_disk_is_an_error_in_one_line(arguments: str) -> None:
    with Path("/dev/full").open("w") as full:
        assert started(arguments, full.fileno()) == (
            1,
            "error: the output cannot be written: No space left on device\n",
        )


def test_an_output_that_is_closed_is_an_error_in_one_line() -> None:
    assert started("version", None) == (
        1,
        "error: the output cannot be written: standard output is closed\n",
    )


def test_a_reader_that_has_gone_ends_the_command_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert started("version", writer) == (141, "")
    finally:
        os.close(writer)
