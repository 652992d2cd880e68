"""Rewrites flags in kubectl's syntax to flags that click understands.

kubectl's parser (https://pkg.go.dev/github.com/spf13/pflag) takes `-o=name`, gives every switch
an optional value as in `--wait=false`, and for some flags accepts a value only after `=`.
"""

from collections.abc import Iterator, Sequence

import click

TRUE, FALSE = frozenset(("true", "t", "1")), frozenset(("false", "f", "0"))


class OptionalValue(click.Option):
    """An option whose value may be left out: `--dry-run`, or `--dry-run=client`.

    The next word of the command line is never the option's value.
    """

    def __init__(self, *args: object, implied: str = "", **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # As click passes them.
        self.implied = implied


def normalise_arguments(args: Sequence[str], params: Sequence[click.Parameter]) -> list[str]:
    """Return the words of a command line as click understands them.

    Raises a usage error for the value of a switch that is neither true nor false.
    """
    options = {
        name: param
        for param in params
        if isinstance(param, click.Option)
        for name in (*param.opts, *param.secondary_opts)
    }
    return list(_normalise_words(args, options))


def _normalise_words(args: Sequence[str], options: dict[str, click.Option]) -> Iterator[str]:
    words = iter(args)
    for word in words:
        if word == "--":
            yield word
            yield from words
            return
        name, sign, value = word.partition("=")
        option = options.get(name)
        if option is None:
            yield word
        elif isinstance(option, OptionalValue):
            yield word if sign else f"{name}={option.implied}"
        elif option.is_flag and sign:
            yield from _normalise_switch(option, name, value)
        elif sign and not name.startswith("--"):
            yield f"{name}{value}" if value else word
        else:
            yield word
            if not (sign or option.is_flag or option.count):
                yield from _next(words)


def _normalise_switch(option: click.Option, name: str, value: str) -> Iterator[str]:
    if value.lower() in TRUE:
        yield name
    elif value.lower() not in FALSE:
        raise click.UsageError(f"{name}: {value!r} is neither true nor false")
    elif option.secondary_opts:
        opposite = option.opts if name in option.secondary_opts else option.secondary_opts
        yield opposite[0]


def _next(words: Iterator[str]) -> Iterator[str]:
    """Yield the value of the preceding option; such a value is never rewritten."""
    value = next(words, None)
    if value is not None:
        yield value
