"""A request of a user who is signed in, as the pages see it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from console.host.account import Account
from console.host.rendering import lead
from console.host.sessions import Session
from console.view.commands import Shell, list_past_commands
from console.view.model import Place
from console.view.moments import Shown
from nodepool.contract.commands import ApplyNodePool, ScaleNodePool
from nodepool.contract.messages import Command
from nodepool.contract.roles import SENDERS


class Missing(Exception):
    """There is no such page; the text names the missing object.

    events: the address of its events; empty if it has none.
    """

    def __init__(self, text: str, events: str = "") -> None:
        super().__init__(text)
        self.events = events


class NotAllowed(Exception):
    """The role of the user does not allow an action; the text names the roles that do."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A request.

    parts: the values in the path. query: the values after it, each name once.
    lists: the same, for names that occur several times. typed: the fields of a form.
    is_trusted: whether the form was made in this session.
    shown: the moment of the past that the page shows; None for the present.
    is_frame: whether the browser has the page open, and so keeps its times going by itself.
    """

    session: Session
    account: Account
    parts: Mapping[str, str]
    query: Mapping[str, str]
    lists: Mapping[str, list[str]]
    now: datetime
    typed: Mapping[str, str] = field(default_factory=dict)
    is_trusted: bool = False
    is_frame: bool = False
    shown: Shown | None = None

    @property
    def place(self) -> Place:
        """The object that the path names."""
        return Place(self.parts["cluster"], self.parts["name"])

    def to(self, *parts: object, **query: object) -> str:
        """Return the address of another page, at the moment that this one shows."""
        return lead(self.shown.at if self.shown is not None else "", *parts, **query)

    def of_moment(self, *shells: Shell) -> Sequence[Shell]:
        """Return commands as they show the moment of this page; kubectl has none for the past."""
        return shells if self.shown is None else list_past_commands(shells, self.shown.at)

    @property
    def is_operator(self) -> bool:
        """Return whether the user runs the platform, and belongs to no organisation."""
        return not self.account.identity.org

    @property
    def is_live(self) -> bool:
        """Return whether the mirror is current, so that actions are allowed: not in the past."""
        return self.shown is None and not self.account.mirror.fault

    @property
    def may_change(self) -> bool:
        """Return whether the user may scale and edit NodePools."""
        return not self.is_operator and self.may(ScaleNodePool) and self.may(ApplyNodePool)

    async def send(self, command: Command) -> None:
        """Send a command as the user, in the name of the person who has signed in."""
        await self.account.send(command, self.session.person)

    def may(self, command: type[Command]) -> bool:
        """Return whether the role of the user may send a command, which nobody may in the past."""
        return self.shown is None and self.account.identity.role in SENDERS.get(command, ())
