"""Dead letters as they are printed."""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from nodepool.cli.layout import align_columns, visible
from nodepool.cli.times import human
from nodepool.contract.moments import rfc3339

if TYPE_CHECKING:
    from nodepool.client.dead_letters import DeadLetter
    from nodepool.client.errors import Refused
    from nodepool.client.replaying import Replay
    from nodepool.contract.documents import Document

HEADINGS = ("POSITION", "SERVICE", "AGE", "MESSAGE", "ABOUT", "FIELD", "CAUSE")
WIDE = (*HEADINGS[:-1], "INPUT", "SUBJECT", "CAUSE")


def cells(letter: "DeadLetter", now: datetime, *, wide: bool) -> list[str]:
    """Return the cells of a dead letter in a table."""
    address = letter.address
    about = "/".join(part for part in address.path if part not in ("_", "")) if address else ""
    first = [
        str(letter.position),
        letter.service,
        human((now - letter.time).total_seconds()),
        address.name if address else "-",
        about or "-",
        letter.field or "-",
    ]
    more = [str(letter.input or "-"), letter.subject or "-"] if wide else []
    return [*first, *more, letter.cause]


def document(letter: "DeadLetter", refusal: "Refused | None" = None) -> "Document":
    """Return a dead letter as an object."""
    status: dict[str, object] = {"cause": letter.cause, "field": letter.field}
    if refusal is not None:
        parts = ("reason", "field", "message")
        status["refusal"] = {part: getattr(refusal, part) for part in parts}
    return {
        "kind": "DeadLetter",
        "metadata": {"name": str(letter.position), "creationTimestamp": rfc3339(letter.time)},
        "spec": {
            "service": letter.service,
            "position": letter.input,
            "subject": letter.subject,
            "stored": letter.stored,
            "content": letter.content,
        },
        "status": status,
    }


def description(
    letter: "DeadLetter", refusal: "Refused | None", replay: "Replay", now: datetime
) -> str:
    """Return all of a dead letter, and how to repair its cause."""
    lines = [
        ("Position:", f"{letter.position}"),
        ("Service:", letter.service),
        ("Parked:", f"{rfc3339(letter.time)} ({human((now - letter.time).total_seconds())} ago)"),
        ("Input:", f"position {letter.input}, stored {letter.stored}"),
        ("Subject:", letter.subject),
        ("Field:", letter.field or "<none>"),
        ("Cause:", letter.cause),
        ("Sender:", _answer(letter, refusal)),
        ("Replay:", _replay(letter, replay)),
        ("Content:", ""),
    ]
    return visible("\n".join([*_single(lines), *_content(letter.content)]))


def _single(lines: Iterable[tuple[str, str]]) -> Sequence[str]:
    return align_columns([(title, " ".join(text.split())) for title, text in lines])


def _content(content: str) -> Sequence[str]:
    with suppress(ValueError):  # It may not be JSON, or be cut.
        content = json.dumps(json.loads(content), indent=2, ensure_ascii=False)
    return [f"  {line}" for line in content.splitlines()]


def _answer(letter: "DeadLetter", refusal: "Refused | None") -> str:
    if refusal is not None:
        return f"was refused: {refusal.message} ({refusal.reason})"
    return "has no outcome" if letter.is_command else "<none>: it is no command"


def _replay(letter: "DeadLetter", replay: "Replay") -> str:
    if replay.why_not:
        return f"no: {replay.why_not}" + ("; --force does it" if replay.is_stale else "")
    return f"once {letter.service} is mended: nodepool dead replay {letter.position}"
