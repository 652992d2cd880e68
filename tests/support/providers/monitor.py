"""Reads what a provider hears and says in the order of the log, and names each rule it breaks.

A provider may lag: it has heard only what lies before the input that led to its event. So what it
hears is folded once it says something that follows from that input, or from a later one.
"""

from collections import deque

from nodepool.contract.keys import MachineKey
from nodepool.contract.messages import Message
from nodepool.contract.providers import ProviderDuty, ProviderHears, ProviderRule, ProviderSays
from support.providers.facts import State, fold_heard, fold_said
from support.providers.rules import find_broken_rules, find_owed_reports


class Monitor:
    """What one provider has heard and said so far.

    provider: its name.
    state: what follows from what it had read when it said its last event.
    """

    def __init__(self, provider: str) -> None:
        self.provider = provider
        self.state = State()
        self._unread: deque[tuple[int, ProviderHears]] = deque()

    def read(
        self, position: int, cause: int, speaker: str, message: Message
    ) -> tuple[ProviderRule, ...]:
        """The rules that the next message of the log breaks; a message of others breaks none.

        cause: the position of the input that led to the message; 0 if it names none.
        """
        if isinstance(message, ProviderHears):
            self._unread.append((position, message))
        if not isinstance(message, ProviderSays) or speaker != self.provider:
            return ()
        self._catch_up(cause or position)
        broken = tuple(find_broken_rules(self.state, self.provider, message))
        self.state = fold_said(self.state, message)
        return broken

    def list_owed(self) -> list[tuple[MachineKey, ProviderDuty]]:
        """What the provider owes once it has read everything and has had time for it."""
        self._catch_up(None)
        return list(find_owed_reports(self.state))

    def _catch_up(self, until: int | None) -> None:
        while self._unread and (until is None or self._unread[0][0] <= until):
            self.state = fold_heard(self.state, self._unread.popleft()[1])
