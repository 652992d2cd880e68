"""Parsing the formats of `-o`, and printing objects in these formats."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import click

from nodepool.cli.layout import Table
from nodepool.cli.output import as_json, as_list, as_yaml, print_text
from nodepool.contract.documents import Document
from nodepool.contract.suggest import did_you_mean
from nodepool.nats.wire.files import read_given

if TYPE_CHECKING:
    from nodepool.cli.jsonpath import Path, Template

Form = Literal["", "wide", "json", "yaml", "csv", "name", "jsonpath", "custom-columns"]
FORMATS = ("json", "yaml", "wide", "name", "jsonpath=TEMPLATE", "custom-columns=TITLE:PATH,...")
CSV = "csv"
"""The format that only commands print whose output is a table, not objects."""
ABSENT = "<none>"
"""The text that kubectl prints in a custom column for a missing field."""
FILE_BYTES_MAX = 1 << 20
"""The largest file with a template or with columns that is read, in bytes."""
_COMMA = re.compile(r",(?![^\[(]*[\])])")
_EXAMPLES = {
    "jsonpath": "jsonpath='{.items[*].metadata.name}'",
    "custom-columns": "custom-columns=NAME:.metadata.name,TARGET:.spec.targetNodes",
}


@dataclass(frozen=True, slots=True)
class Format:
    """How objects are printed; the empty form is a table.

    template: the template, if the form is `jsonpath`.
    columns: the title and value of each column, if the form is `custom-columns`.
    """

    form: Form = ""
    template: "Template" = ()
    columns: "tuple[tuple[str, Path], ...]" = ()

    @property
    def is_table(self) -> bool:
        """Return whether the format is a table with the columns of the type."""
        return self.form in ("", "wide")

    @property
    def is_whole(self) -> bool:
        """Whether all objects are printed as one text: a list, or one object requested by name."""
        return self.form in ("json", "yaml", "jsonpath")

    def whole(self, documents: Sequence[Document], *, single: bool) -> str:
        """Return the objects as JSON, YAML or template text, without a final newline.

        The objects are wrapped in a `List`, unless `single` is set and there is exactly one. Raises
        a usage error if the template does not fit the objects.
        """
        value = documents[0] if single and len(documents) == 1 else as_list(documents)
        if self.form == "json":
            return as_json(value)
        if self.form == "yaml":
            return as_yaml(value)
        # Imported here and below, because few commands need it.
        from nodepool.cli.jsonpath import JsonPathError, render_template

        try:
            return render_template(self.template, value)
        except JsonPathError as error:
            raise click.UsageError(f"--output: jsonpath: {error}") from None

    def print_whole(self, documents: Sequence[Document], *, single: bool) -> None:
        """Print the objects as one text; see `whole`."""
        # A template contains its own line breaks.
        print_text(self.whole(documents, single=single), newline=self.form != "jsonpath")

    def print_one_of_many(self, document: Document) -> None:
        """Print an object of a stream as a separate text; see `whole`."""
        text = self.whole([document], single=True)
        text = f"{text}\n---" if self.form == "yaml" else text
        print_text(text, newline=self.form != "jsonpath")

    def custom_table(self) -> Table:
        """Return an empty table with the custom columns."""
        return Table([title for title, _ in self.columns])

    def custom_cells(self, document: Document) -> list[str]:
        """Return the cells of an object in the custom columns."""
        return [_custom_cell(document, path) for _, path in self.columns]


TABLE = Format()
"""A table with the columns of the type."""


def _custom_cell(document: Document, path: "Path") -> str:
    from nodepool.cli.jsonpath import JsonPathError, text_of

    try:
        values = path.find(document)
    except JsonPathError:
        values = []
    return ",".join(text_of(value) if value is not None else ABSENT for value in values) or ABSENT


def parse_format(text: str) -> Format:
    """Return the format that `-o` names; raise a usage error with the fault and a remedy."""
    word, sign, argument = text.partition("=")
    match word:
        case "" | "wide" | "json" | "yaml" | "csv" | "name" if not sign:
            return Format(word)
        case "jsonpath" | "custom-columns" if argument:
            return _with_argument(word, argument)
        case "jsonpath-file" | "custom-columns-file" if argument:
            return _with_argument(word.removesuffix("-file"), _content(word, argument))
        case "jsonpath" | "jsonpath-file" | "custom-columns" | "custom-columns-file":
            example = _EXAMPLES[word.removesuffix("-file")]
            raise click.UsageError(f"--output: {word} needs a value; write -o {example}")
        case "go-template" | "go-template-file" | "template" | "templatefile":
            example = _EXAMPLES["jsonpath"]
            raise click.UsageError(
                f"--output: {word} is not supported; use jsonpath, as in -o {example}"
            )
    close = did_you_mean(word, [each.partition("=")[0] for each in FORMATS])
    hint = close or f"; use {', '.join(FORMATS)}"
    raise click.UsageError(f"--output: {text!r} is not a format{hint}")


def _with_argument(form: str, argument: str) -> Format:
    from nodepool.cli.jsonpath import JsonPathError
    from nodepool.cli.jsonpath_parser import parse_template

    try:
        if form == "jsonpath":
            return Format("jsonpath", template=parse_template(argument))
        return Format("custom-columns", columns=tuple(_custom_columns(argument)))
    except JsonPathError as error:
        raise click.UsageError(f"--output: {form}: {error}") from None


def _custom_columns(text: str) -> "list[tuple[str, Path]]":
    """Return the columns in `TITLE:PATH,...`, or in a file of a title line and a path line."""
    from nodepool.cli.jsonpath import JsonPathError
    from nodepool.cli.jsonpath_parser import parse_path

    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) == 2:
        pairs = list(zip(lines[0].split(), lines[1].split(), strict=False))
        if len(lines[0].split()) != len(lines[1].split()):
            raise JsonPathError("the file has not as many titles as paths")
        return [(title, parse_path(path)) for title, path in pairs]
    columns = []
    for part in _COMMA.split(text.strip()):
        title, sign, path = part.partition(":")
        if not (title and sign and path):
            raise JsonPathError(f"{part!r} is not TITLE:PATH, such as NAME:.metadata.name")
        columns.append((title, parse_path(path)))
    return columns


def _content(word: str, file: str) -> str:
    try:
        content = read_given(file, FILE_BYTES_MAX)
        if len(content) <= FILE_BYTES_MAX:
            return content.decode()
        reason = f"is larger than the {FILE_BYTES_MAX} bytes allowed"
    except OSError as error:
        reason = str(error.strerror)
    except UnicodeDecodeError:
        reason = "is not UTF-8"
    raise click.UsageError(f"--output: {word}: {file}: {reason}")
