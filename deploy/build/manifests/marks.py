"""Write a part of a file that is otherwise written by hand: what lies between two marks.

A mark is a comment in the file's own language: a line with `<name>` begins the part, and a line
with `</name>` ends it. A file may have the same part in several places.
"""

import re
from collections.abc import Mapping


def fill(text: str, parts: Mapping[str, str]) -> str:
    """Return a text with each of these parts between the marks with its name.

    Raise a LookupError if a part has no marks.
    """
    for name, part in parts.items():
        place = rf"(?ms)^([^\n]*<{name}>[^\n]*\n).*?^(?=[^\n]*</{name}>)"
        text, count = re.subn(place, r"\g<1>" + part.replace("\\", r"\\"), text)
        if not count:
            raise LookupError(f"no line with <{name}> and no line with </{name}> after it")
    return text
