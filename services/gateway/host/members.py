"""Knows the users of the organisations from a file, and notices when the file changes."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from nodepool.contract.actors import Actor, Member, Members, Sender, actor_of, members_in
from nodepool.host.logs import Logger

LOOK_S: Final = 0.5
"""How often the file is looked at, in seconds, while messages arrive."""
FILE_BYTES_MAX: Final = 64 << 20


class MembersFile:
    """The members in a file.

    clock: seconds of a monotonic clock.
    fault: why the file cannot be used, as one line; empty if it can be used. The members that were
        read last stay known.
    """

    def __init__(self, path: str, clock: Callable[[], float], log: Logger) -> None:
        self._path = Path(path)
        self._clock, self._log = clock, log
        self._members: Members = {}
        self._orgs: Mapping[str, Sequence[Member]] = {}
        self._seen: tuple[int, int, int] | None = None
        self._next = float("-inf")
        self.fault = ""

    def current(self) -> Members:
        """Return the members as the file has them now, or had them half a second ago."""
        now = self._clock()
        if now >= self._next:
            self._next = now + LOOK_S
            self._look()
        return self._members

    def actor_of(self, sender: Sender) -> Actor | None:
        """Return the member that a sender is; None if the sender is no member.

        A user who is let in a moment after the file was read is known at once: the server knows it
        already, and so the file has it.
        """
        actor = actor_of(sender, self.current())
        if actor is None and not self.fault:
            self._look()
            actor = actor_of(sender, self._members)
        return actor

    def orgs(self) -> Collection[str]:
        """Return the organisations that have members."""
        self.current()
        return self._orgs.keys()

    def of(self, org: str) -> Sequence[Member]:
        """Return the members of an organisation, in the order of their names."""
        self.current()
        return self._orgs.get(org, ())

    def _look(self) -> None:
        try:
            status = self._path.stat()
            seen = status.st_mtime_ns, status.st_size, status.st_ino
            if seen == self._seen and not self.fault:
                return
            if status.st_size > FILE_BYTES_MAX:
                raise ValueError(f"it has {status.st_size} bytes")
            self._members = members_in(self._path.read_text("utf-8"))
            self._orgs = _group(self._members.values())
        except (OSError, ValueError, RecursionError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self.fault = f"the members file {self._path} cannot be used: {reason}"
            self._log.warning("members not read", cause=self.fault)
            return
        self._seen, self.fault = seen, ""
        self._log.info("members read", members=len(self._members))


def _group(members: Iterable[Member]) -> Mapping[str, Sequence[Member]]:
    """Return the members of each organisation, in the order of their names."""
    found: dict[str, list[Member]] = {}
    for member in sorted(members, key=lambda each: each.name):
        found.setdefault(member.account, []).append(member)
    return found
