"""The properties of standard output: its width, and whether it shows colours."""

import os
import shutil
import sys
from collections.abc import Callable, Mapping

from nodepool.cli.layout import Screen

Paint = Callable[[str, str], str]
"""Returns the text of a cell with its colour, from the title of its column and the text."""

RED, YELLOW = "31", "33"


def screen(paint: Paint, environment: Mapping[str, str] = os.environ) -> Screen:
    """Return the screen of a table: a terminal with `paint`, or no limit and no colour.

    Colours are left out if NO_COLOR is set (https://no-color.org), and on a dumb terminal.
    """
    if sys.stdout is None or not sys.stdout.isatty():
        return Screen()
    width = shutil.get_terminal_size().columns
    if environment.get("NO_COLOR") or environment.get("TERM") == "dumb":
        return Screen(width)
    return Screen(width, paint)


def colour_text(text: str, colour: str) -> str:
    """Return the text in a colour of the terminal's own palette."""
    return f"\x1b[{colour}m{text}\x1b[0m"
