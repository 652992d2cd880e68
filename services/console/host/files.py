"""The files that pages consist of beside their HTML: the style, the scripts and the icon."""

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

STATIC: Final = Path(__file__).parents[1] / "static"
BUNDLE: Final = "page.js"
"""The name under which browsers get all scripts as one file.

A browser that has nothing yet shows a page sooner the fewer connections it opens.
"""
SCRIPTS: Final = ("htmx.min.js", "hx-csp.min.js", "hx-sse.min.js", "console.js")
"""The scripts of a page, in the order in which they run: the extensions of htmx before it begins,
which it does after the last one."""
TYPES: Final = {BUNDLE: "text/javascript", "icon.svg": "image/svg+xml"}
"""The files that browsers ask for, with their types."""
YEAR_S: Final = 31_536_000


@cache
def read_file(name: str) -> bytes:
    """Return the content of a file of `TYPES`."""
    names = SCRIPTS if name == BUNDLE else (name,)
    return b"\n".join((STATIC / each).read_bytes() for each in names)


@cache
def read_style() -> Markup:
    """Return the style, which each page carries: a browser shows nothing before it has it."""
    return Markup((STATIC / "console.css").read_text(encoding="utf-8"))


@cache
def asset(name: str) -> str:
    """Return the address of a file, which changes with its content."""
    digest = hashlib.sha256(read_file(name)).hexdigest()[:12]
    return f"/static/{digest}/{name}"


async def serve_file(request: Request) -> Response:
    """Return a file; its address names its content, so that browsers keep it."""
    name = request.path_params["name"]
    if name not in TYPES:
        return PlainTextResponse("there is no such file\n", 404)
    headers = {"Cache-Control": f"public, max-age={YEAR_S}, immutable"}
    return Response(read_file(name), headers=headers, media_type=TYPES[name])
