"""The flow table: which service hears and says which messages, as Markdown."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from nodepool.contract.messages import Command, Event, Message

HEADINGS = ("Service", "Question", "Commands heard", "Events heard", "Says")


class Part(Protocol):
    """A service, or another program that hears or says messages."""

    @property
    def name(self) -> str: ...
    @property
    def inputs(self) -> Mapping[str, type[Message]]: ...
    @property
    def outputs(self) -> Mapping[str, type[Message]]: ...


def table(services: Iterable[Part], questions: Mapping[str, str]) -> str:
    """Return a row per service: its question, what it hears (events by speaker), what it says.

    A service without an entry in `questions` is shown without its question.
    """
    rule = tuple("---" for _ in HEADINGS)
    rows = (_row(service, questions.get(service.name, "")) for service in services)
    return "\n".join(map(_line, (HEADINGS, rule, *rows)))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _row(service: Part, question: str) -> tuple[str, ...]:
    heard = service.inputs.values()
    commands = [kind for kind in heard if issubclass(kind, Command)]
    events: dict[str, list[type[Message]]] = {}
    for kind in heard:
        if issubclass(kind, Event):
            events.setdefault(" or ".join(kind.speakers()), []).append(kind)
    by_speaker = (f"{speaker}: {_names(kinds)}" for speaker, kinds in sorted(events.items()))
    return (
        f"**{service.name}**",
        question,
        _names(commands),
        "<br>".join(by_speaker),
        _names(service.outputs.values()),
    )


def _names(kinds: Iterable[type[Message]]) -> str:
    return ", ".join(f"`{kind.__name__}`" for kind in kinds)
