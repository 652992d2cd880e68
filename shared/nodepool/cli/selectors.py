"""Selectors as options of a command: what cannot be read is a usage error."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import click

from nodepool.contract import selectors
from nodepool.contract.selectors import SelectorError

P = ParamSpec("P")
R = TypeVar("R")


def _raising_usage_errors(option: str, select: Callable[P, R]) -> Callable[P, R]:
    """Return `select` with a usage error, which names the option, for each SelectorError."""

    @wraps(select)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return select(*args, **kwargs)
        except SelectorError as error:
            raise click.UsageError(f"{option}: {error}") from None

    return call


selects = _raising_usage_errors("--selector", selectors.selects)
has_fields = _raising_usage_errors("--field-selector", selectors.has_fields)
field_paths = _raising_usage_errors("--field-selector", selectors.field_paths)


def check_fields(selector: str) -> None:
    """Raise a usage error if a field selector names a field that no NodePool has.

    A misspelt field would be missing in every NodePool, and `!=` would choose every NodePool.
    """
    for path in field_paths(selector):
        # Imported here, because it loads the models of a NodePool.
        from nodepool.cli.schema import NoSuchFieldError, find_field

        try:
            find_field(path.split("."))
        except NoSuchFieldError as error:
            raise click.UsageError(f"--field-selector: {path}: {error}") from None
