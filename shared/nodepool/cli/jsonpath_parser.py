"""Parsing the templates of `nodepool.cli.jsonpath` from text."""

import re

from nodepool.cli.jsonpath import (
    Descent,
    Field,
    Filter,
    Index,
    JsonPathError,
    Literal,
    Operand,
    Path,
    Range,
    Slice,
    Step,
    Template,
    Text,
    Union,
    Wildcard,
)

_NAME = re.compile(r"(?:\\.|[^\s.,\[\]{}()$@\"'=<>!?*:\\&|])+")
# Python refuses to parse numbers with thousands of digits.
_INTEGER = re.compile(r"[+-]?\d{1,18}(?!\d)")
_NUMBER = re.compile(r"[+-]?\d{1,18}(?:\.\d{1,18})?(?![\w.])")
_WORD = re.compile(r"(true|false)\b")
_OPERATOR = re.compile(r"==|!=|<=|>=|<|>")
_RANGE = re.compile(r"range\b")
_END = re.compile(r"end\s*\}")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'"}


def parse_template(text: str) -> Template:
    """Return the template in a text such as `{range .items[*]}{.metadata.name}{"\\n"}{end}`.

    A text without braces is one path. Raises `JsonPathError`, which names the place.
    """
    if "{" not in text and text.lstrip()[:1] in (".", "$", "["):
        return (parse_path(text),)
    return _Parser(text).template()


def parse_path(text: str) -> Path:
    """Return the one path in a text, written as `{.a.b}`, `.a.b` or `a.b`.

    Raises `JsonPathError`, which names the place.
    """
    inner = text.strip()
    if inner.startswith("{"):
        if not inner.endswith("}"):
            raise JsonPathError(f"{text!r} has no '}}' at its end")
        inner = inner[1:-1].strip()
    if not inner.startswith((".", "$", "@", "[")):
        inner = f".{inner}"
    parser = _Parser(inner)
    path = parser.path()
    if not parser.is_at_end():
        raise parser.error("is not part of a path")
    if not path.steps:
        raise JsonPathError(f"{text!r} names no field; write it as .metadata.name")
    return path


def _key(text: str) -> Field:
    """Return the step of `['text']`; a backslash keeps a dot from separating fields."""
    parts = re.split(r"(?<!\\)\.", text)
    names = [part.replace("\\.", ".") for part in parts]
    return Field(".".join(names), tuple(names) if len(names) > 1 and all(names) else ())


class _Parser:
    """A text that is read from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def is_at_end(self) -> bool:
        return self._at >= len(self._text)

    def error(self, problem: str) -> JsonPathError:
        """Return the error for the current place in the text."""
        shown = repr(self._text[self._at : self._at + 12]) if not self.is_at_end() else "its end"
        return JsonPathError(f"{self._text!r}: {shown} at character {self._at + 1} {problem}")

    def template(self) -> Template:
        return self._parts(inside_range=False)

    def _parts(self, *, inside_range: bool) -> Template:
        parts: list[Text | Range | Path] = []
        while not self.is_at_end():
            begin = self._text.find("{", self._at)
            begin = len(self._text) if begin < 0 else begin
            if begin > self._at:
                parts.append(Text(self._text[self._at : begin]))
            self._at = begin
            if not self._take("{"):
                break
            self._blanks()
            if self._read_match(_END):
                if inside_range:
                    return tuple(parts)
                raise self.error("follows an {end} without a {range}")
            parts.append(self._expression())
        if inside_range:
            raise self.error("comes before the {end} of a {range}")
        return tuple(parts)

    def _expression(self) -> Text | Range | Path:
        """Parse the inside of `{...}`, after the opening brace, and pass the closing brace."""
        part: Text | Path
        if self._read_match(_RANGE):
            over = self.path()
            self._close("}")
            return Range(over, self._parts(inside_range=True))
        part = Text(self._read_string()) if self._next() in ("'", '"') else self.path()
        self._close("}")
        return part

    def path(self) -> Path:
        """Parse a path, up to the first character that does not belong to it."""
        self._blanks()
        from_root = self._take("$")
        current = not from_root and self._take("@")
        steps: list[Step] = []
        while True:
            if self._take(".."):
                steps.append(Descent())
                if self._next() != "[":
                    steps.append(self._name())
            elif self._take("."):
                # `{.}` is the object itself.
                if self._next() not in ("", "}", "[", ")", " "):
                    steps.append(self._name())
                current = True
            elif self._take("["):
                steps.append(self._bracket())
            else:
                break
        if not steps and not from_root and not current:
            raise self.error("is not a path; write it as .metadata.name")
        return Path(tuple(steps), from_root)

    def _name(self) -> Step:
        if self._take("*"):
            return Wildcard()
        name = self._read_match(_NAME)
        if not name:
            raise self.error("is not the name of a field")
        return Field(re.sub(r"\\(.)", r"\1", name))

    def _bracket(self) -> Step:
        """Parse the inside of `[...]`, after the opening bracket, and pass the closing bracket."""
        self._blanks()
        if self._take("?"):
            self._close("(")
            test = self._filter()
            self._close(")")
            self._close("]")
            return test
        parts = [self._part_of_union()]
        self._blanks()
        while self._take(","):
            self._blanks()
            parts.append(self._part_of_union())
            self._blanks()
        self._close("]")
        first = parts[0]
        if len(parts) == 1 and len(first.steps) == 1:
            return first.steps[0]
        return Union(tuple(parts))

    def _part_of_union(self) -> Path:
        if self._take("*"):
            return Path((Wildcard(),))
        if self._next() in ("'", '"'):
            return Path((_key(self._read_string()),))
        if self._next() in (".", "@", "$"):
            return self.path()
        return Path((self._numbers(),))

    def _numbers(self) -> Step:
        numbers = [self._integer()]
        while self._take(":"):
            numbers.append(self._integer())
        if len(numbers) == 1:
            if numbers[0] is None:
                raise self.error("is not an index, a 'name', * or ?(...)")
            return Index(numbers[0])
        if len(numbers) > 3 or numbers[2:] == [0]:
            raise self.error("ends no slice; write it as [start:end:step]")
        start, end, step = (*numbers, None)[:3]
        return Slice(start, end, step)

    def _integer(self) -> int | None:
        text = self._read_match(_INTEGER)
        return int(text) if text else None

    def _filter(self) -> Filter:
        left = self._operand()
        self._blanks()
        operator = self._read_match(_OPERATOR)
        if operator:
            right = self._operand()
            self._blanks()
        if self._next() in ("&", "|", "=", "~"):
            raise self.error("is not supported in a filter; use ==, !=, <, <=, > or >=")
        return Filter(left, operator, right) if operator else Filter(left)

    def _operand(self) -> Operand:
        self._blanks()
        if self._next() in ("'", '"'):
            return Literal(self._read_string())
        if number := self._read_match(_NUMBER):
            return Literal(float(number) if "." in number else int(number))
        if word := self._read_match(_WORD):
            return Literal(word == "true")
        return self.path()

    def _read_string(self) -> str:
        begin, quote = self._at, self._text[self._at]
        self._at += 1
        characters: list[str] = []
        while not self.is_at_end():
            character = self._text[self._at]
            self._at += 1
            if character == quote:
                return "".join(characters)
            if character == "\\" and not self.is_at_end():
                escaped = self._text[self._at]
                self._at += 1
                character = _ESCAPES.get(escaped, f"\\{escaped}")
            characters.append(character)
        self._at = begin
        raise self.error(f"has no closing {quote}")

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, text: str) -> bool:
        """Pass the text if it comes next, and return whether it does."""
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _close(self, text: str) -> None:
        self._blanks()
        if not self._take(text):
            raise self.error(f"is not the {text!r} that is expected here")

    def _read_match(self, pattern: re.Pattern[str]) -> str:
        """Pass the text that matches a pattern, and return it; empty if nothing matches."""
        match = pattern.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return match[0] if match else ""

    def _blanks(self) -> None:
        while self._next() in (" ", "\t", "\n"):
            self._at += 1
