"""How much one process may ask of its controllers, and for how long."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of all that is asked.

    idle_s: how long an unused connection is kept. With TLS each takes some 200 KiB of memory, and
        many controllers stand few connections.
    connect_s, request_s: how long a connection, and a request with its answer, may take.
    call_s: how long a short reading, a change of the boot or a reset may take in all.
    parts_s: how long a reading with parts may take.
    closing_s: how long all sessions together may take to be ended.
    answer_bytes: how large an answer may be.
    per_controller: the calls at a time to one controller, for all systems behind it.
    at_once: the calls at a time to all controllers.
    suspects: how many of these may be to controllers whose last call has failed, or was slow.
    power, suspects_power: how many of the other calls, and of those to suspects, are kept for power
        requests, so that no reading takes them.
    slow: the share of its time from which on a call was slow.
    pause_least_s, pause_most_s: how long a controller is left alone after its first failure, and at
        most after many.
    members: how many processors, interfaces and the like a machine may have, and how many entries
        of a log are asked for one by one.
    entries: how many entries are read of the first page of a log, and of its last pages together,
        before the newest are chosen.
    pages: how many pages of one collection are read.
    """

    idle_s: float = 2.0
    connect_s: float = 5.0
    request_s: float = 15.0
    call_s: float = 60.0
    parts_s: float = 300.0
    closing_s: float = 5.0
    answer_bytes: int = 2 * 1024 * 1024
    per_controller: int = 2
    at_once: int = 128
    suspects: int = 32
    power: int = 16
    suspects_power: int = 8
    slow: float = 1 / 6
    pause_least_s: float = 5.0
    pause_most_s: float = 300.0
    members: int = 64
    entries: int = 4_096
    pages: int = 16

    def __post_init__(self) -> None:
        """Raise ValueError if a bound leaves no room for a call."""
        if not 1 <= self.power < self.at_once - self.suspects:
            raise ValueError("power must lie between 1 and at_once - suspects - 1")
        if not 1 <= self.suspects_power < self.suspects:
            raise ValueError("suspects_power must lie between 1 and suspects - 1")
        if not 1 <= self.per_controller <= 2:
            raise ValueError("per_controller must be 1 or 2, as much as controllers stand")
