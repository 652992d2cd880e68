"""Makes the flow table and the diagram of the services for the pages that show them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module

from contracts.samples import message_classes
from contracts.services import load_services
from nodepool.contract.messages import Message
from nodepool.contract.services import EDGES
from nodepool.engine.flow import Part, table


@dataclass(frozen=True, slots=True)
class Edge:
    """Lists the messages of a program outside the services, such as fleet.

    inputs: no messages, because such a program answers no message in the log.
    outputs: the events that it publishes, by name.
    """

    name: str
    inputs: Mapping[str, type[Message]]
    outputs: Mapping[str, type[Message]]


def list_programs() -> tuple[Part, ...]:
    """Return each service, and each edge with the events that it speaks."""
    return (*load_services(), *(Edge(name, {}, _said_by(name)) for name in EDGES))


def flow() -> str:
    """Return the flow table as Markdown."""
    programs = list_programs()
    return f"\n{table(programs, {each.name: describe(each.name) for each in programs})}\n\n"


def diagram() -> str:
    """Return the boxes of the programs, and their arrows to and from the log, for Mermaid."""
    return "".join(f"    {line}\n" for line in (*_boxes(), *_arrows()))


def describe(name: str) -> str:
    """Return the first paragraph of what a package says about itself."""
    return (import_module(name).__doc__ or "").partition("\n\n")[0]


def _boxes() -> Iterator[str]:
    for each in list_programs():
        question = describe(each.name).partition("?")[0].replace("`", "")
        yield f'{each.name}["{each.name}<br/>{question}?"]'


def _arrows() -> Iterator[str]:
    programs = list_programs()
    yield f"log <--> {' & '.join(each.name for each in programs if each.outputs)}"
    yield f"log --> {' & '.join(each.name for each in programs if not each.outputs)}"


def _said_by(name: str) -> dict[str, type[Message]]:
    kinds = message_classes().items()
    return {key: kind for key, kind in kinds if getattr(kind, "speaker", "") == name}
