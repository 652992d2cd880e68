"""Reading requests: forms, and paths to come back to."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from console.host.guard import TARGET_MAX
from console.host.sessions import Session

FIELDS_MAX: Final = 64
"""The most fields of a form or of an address."""


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


async def refuse_large(request: Request, error: Exception) -> Response:
    """Return that the form of a request is too large."""
    return PlainTextResponse("the form is too large\n", 413)
