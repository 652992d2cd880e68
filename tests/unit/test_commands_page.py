"""The page of every command says what the classes say."""

import json
import re

import pytest

from nodepool.contract import commands
from nodepool.contract.decode import decode
from nodepool.contract.messages import Command, Envelope
from nodepool.contract.reference import describe_model
from pages.commands import PAGE, example, fields, identity, page

KINDS: list[type[Command]] = [vars(commands)[name] for name in sorted(commands.COMMANDS)]


def test_the_page_is_that_of_the_classes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make commands`"


def test_the_page_has_every_command_once() -> None:
    assert sorted(re.findall(r"^## (\w+)$", page(), re.MULTILINE)) == sorted(commands.COMMANDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_of_a_command_is_accepted_as_it_stands(kind: type[Command]) -> None:
    # given a command's subject and data as the page shows them
    subject, data = example(kind)

    # when they are sent
    envelope = decode(kind, subject, json.dumps(data).encode(), {}, position=1)

    # then the command can be read
    assert isinstance(envelope, Envelope), envelope


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_a_command_is_documented(kind: type[Command]) -> None:
    undocumented = [
        f"{path}: add a line `name: text` to the docstring of its class"
        for path, field in fields(describe_model(kind, kind.__name__))
        if not (field.text or field.about) and path not in identity(kind)
    ]

    assert undocumented == []
