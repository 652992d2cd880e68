"""The remedies of `explain`, with the forms of the console that carry them out."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from console.view.model import Place
from console.view.standing import sentence
from nodepool.contract.documents import field, items, text
from nodepool.contract.keys import split_peer_name

_COMMAND: Final = re.compile(r"'nodepool [^']*'|^Scale \S+ (?:down )?to [0-9]+")
"""The part of an instruction that says what a form does."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """An instruction that helps, and links to the forms that carry it out: address and words."""

    text: str
    links: tuple[tuple[str, str], ...] = ()

    @property
    def around(self) -> tuple[str, str]:
        """The text before and after the links; a single link replaces the command in the text."""
        found = _COMMAND.search(self.text)
        if found is None or len(self.links) != 1:
            return self.text, ""
        return self.text[: found.start()], self.text[found.end() :]


def list_remedies(cause: object, pool: Place) -> Iterator[Remedy]:
    """Yield the remedies for a cause of `explain` about a NodePool."""
    helps, actions = [*items(cause, "helps")], [*items(cause, "actions")]
    # A gateway of an earlier release has no actions.
    actions += [None] * (len(helps) - len(actions))
    for words, action in zip(helps, actions, strict=False):
        yield Remedy(sentence(str(words), pool.name), tuple(_links(action, pool)))


def _links(action: object, pool: Place) -> Iterator[tuple[str, str]]:
    """Yield the forms that carry out an action of a remedy."""
    name, target = text(action, "node"), field(action, "target")
    match text(action, "kind"):
        case "ScaleTo" if isinstance(target, int):
            yield _scale(pool, target), f"Scale to {target:,}…"
        case "ScalePeer" if isinstance(target, int):
            peer = Place(*split_peer_name(text(action, "peer")))
            yield _scale(peer, target), f"Scale {peer.name} to {target:,}…"
        case "RebootNode" | "DrainNode" as kind:
            verb = "reboot" if kind == "RebootNode" else "drain"
            yield _act(verb, pool, name, is_forced=field(action, "force") is True)
        case "UncordonNodes":
            for each in map(str, items(action, "nodes")):
                yield _act("uncordon", pool, each)
        case "Unreserve" if field(action, "uncordons") is True:
            yield _act("uncordon", pool, name)


def _scale(pool: Place, target: int) -> str:
    return f"/nodepools/{_quote(pool.cluster)}/{_quote(pool.name)}/scale?target={target}"


def _act(verb: str, pool: Place, node: str, *, is_forced: bool = False) -> tuple[str, str]:
    address = f"/nodes/{_quote(pool.cluster)}/{_quote(node)}/{verb}"
    return f"{address}{'?force=yes' if is_forced else ''}", f"{verb.capitalize()} {node}…"


def _quote(name: str) -> str:
    return quote(name, safe="")
