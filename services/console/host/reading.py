"""Reading requests: forms, paths to come back to, and static files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response

from console.host.guard import TARGET_MAX
from console.host.rendering import STATIC
from console.host.sessions import Session

FIELDS_MAX: Final = 64
"""The most fields of a form or of an address."""
YEAR_S: Final = 31_536_000


def local_path(text: str) -> str:
    """Return a path of this site; empty for anything that leads elsewhere."""
    parts = urlsplit(text)
    is_local = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable()
    if parts.scheme or parts.netloc or not is_local or "\\" in text or len(text) > TARGET_MAX:
        return ""
    return text


async def read_fields(request: Request) -> dict[str, str]:
    """Return the fields of a form; if a name is repeated, its last value."""
    fields = parse_query((await request.body()).decode("utf-8", "replace"))
    return {name: values[-1] for name, values in fields.items()} or {"": ""}


def parse_query(text: str) -> dict[str, list[str]]:
    """Return the values of a query or a form by name; empty if it has too many fields."""
    try:
        return parse_qs(text, keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError:
        return {}


def is_made_in(typed: Mapping[str, str], session: Session) -> bool:
    """Return whether a form was made in a session."""
    return session.has_made(typed.get("form_token", ""))


async def serve_static(request: Request) -> Response:
    """Return a static file; its address names its content, so that browsers keep it."""
    names = {path.name for path in STATIC.iterdir()}
    name = request.path_params["name"]
    if name not in names:
        return PlainTextResponse("there is no such file\n", 404)
    headers = {"Cache-Control": f"public, max-age={YEAR_S}, immutable"}
    return FileResponse(Path(STATIC) / name, headers=headers)


async def refuse_large(request: Request, error: Exception) -> Response:
    """Return that the form of a request is too large."""
    return PlainTextResponse("the form is too large\n", 413)
