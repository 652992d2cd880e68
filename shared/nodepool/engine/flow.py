"""Who hears what, and who says it: the flow table of the house, as Markdown."""

from collections.abc import Iterable, Mapping

from nodepool.contract.messages import Command, Event, Message
from nodepool.service import AnyService

HEADINGS = ("Service", "Input", "Commands heard", "Events heard", "Says")


def table(services: Iterable[AnyService], inputs: Mapping[str, str]) -> str:
    """A row for each service: its input, what it hears (events by who says them), what it says.

    A service without an entry in `inputs` is shown without its input.
    """
    rule = tuple("---" for _ in HEADINGS)
    rows = (_row(service, inputs.get(service.name, "")) for service in services)
    return "\n".join(map(_line, (HEADINGS, rule, *rows)))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _row(service: AnyService, input: str) -> tuple[str, ...]:
    heard = service.inputs.values()
    commands = [kind for kind in heard if issubclass(kind, Command)]
    events: dict[str, list[type[Message]]] = {}
    for kind in heard:
        if issubclass(kind, Event):
            events.setdefault(kind.speaker, []).append(kind)
    by_speaker = (f"{speaker}: {_names(kinds)}" for speaker, kinds in sorted(events.items()))
    return (
        f"**{service.name}**",
        input,
        _names(commands),
        "<br>".join(by_speaker),
        _names(service.outputs.values()),
    )


def _names(kinds: Iterable[type[Message]]) -> str:
    return ", ".join(f"`{kind.__name__}`" for kind in kinds)
