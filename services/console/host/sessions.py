"""The sessions of signed-in users, in memory, which end with the console."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from console.host.identities import Identity

SESSIONS_MAX: Final = 1_000
"""The most sessions at a time; the session that was idle longest ends to make room."""
ID_BYTES: Final = 32


@dataclass(slots=True)
class Session:
    """A browser in which a user has signed in.

    id: the value of the cookie. secret: what the token of each form of the session proves.
    used: when it was last used, by a clock that never jumps.
    said: the message that the next page shows about the last action; empty for none.
    person: who has signed in at the OpenID provider; empty after a one-time link.
    ends: when it ends in any case, by the same clock. id_token: what the provider knows it by.
    """

    id: str
    secret: bytes
    identity: Identity
    used: float
    said: str = ""
    person: str = ""
    ends: float = inf
    id_token: str = ""

    @property
    def name(self) -> str:
        """The name of the user, and of the person who works as this user."""
        return f"{self.identity.name} ({self.person})" if self.person else self.identity.name

    @property
    def form_token(self) -> str:
        """Return a token for a form, masked anew for each form.

        Pages are compressed: their length would reveal a token that never changes (BREACH).
        """
        mask = secrets.token_bytes(ID_BYTES)
        return (mask + _mix(self.secret, mask)).hex()

    def has_made(self, token: str) -> bool:
        """Return whether this session made a token."""
        try:
            given = bytes.fromhex(token)
        except ValueError:
            return False
        mask, mixed = given[:ID_BYTES], given[ID_BYTES:]
        is_whole = len(given) == 2 * ID_BYTES
        return is_whole and secrets.compare_digest(_mix(mixed, mask), self.secret)

    def take_said(self) -> str:
        """Return the message for the next page, and clear it."""
        said, self.said = self.said, ""
        return said


class Sessions:
    """All sessions."""

    def __init__(self, idle_s: float, clock: Callable[[], float]) -> None:
        self._idle_s, self._clock = idle_s, clock
        self._sessions: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    def begin(
        self, identity: Identity, person: str = "", most_s: float = inf, id_token: str = ""
    ) -> Session:
        """Return a new session, with a new random id, which ends after at most `most_s` seconds."""
        self._drop_idle()
        if len(self._sessions) >= SESSIONS_MAX:
            oldest = min(self._sessions.values(), key=lambda each: each.used)
            del self._sessions[oldest.id]
        id, secret = secrets.token_urlsafe(ID_BYTES), secrets.token_bytes(ID_BYTES)
        now = self._clock()
        session = Session(id, secret, identity, now, "", person, now + most_s, id_token)
        self._sessions[session.id] = session
        return session

    def find(self, id: str) -> Session | None:
        """Return the session with an id, and note that it is used; None if it has ended."""
        session = self._sessions.get(id)
        if session is None or self._has_ended(session):
            self._sessions.pop(id, None)
            return None
        session.used = self._clock()
        return session

    def end(self, id: str) -> None:
        """End a session."""
        self._sessions.pop(id, None)

    def keep_only(self, identities: Sequence[Identity]) -> None:
        """End the sessions of users who are gone, and of those that are idle."""
        self._drop_idle()
        known = set(identities)
        for session in list(self._sessions.values()):
            if session.identity not in known:
                self.end(session.id)

    def _drop_idle(self) -> None:
        for session in list(self._sessions.values()):
            if self._has_ended(session):
                self.end(session.id)

    def _has_ended(self, session: Session) -> bool:
        now = self._clock()
        return now - session.used > self._idle_s or now >= session.ends


def _mix(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
