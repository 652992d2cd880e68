"""What the server would do with the form of a NodePool."""

from dataclasses import dataclass
from typing import Final

from console.view.model import Fleet, Place
from console.view.organisation import describe_room, find_room
from console.view.words import Word

ACCEPTED: Final = Word("ok", "Would be accepted")
REFUSED: Final = Word("bad", "Would be refused")
WAITS: Final = Word("wait", "Would wait for quota")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a form as a state, and one or two sentences about it, which may be empty."""

    word: Word
    text: str = ""


def judge_target(
    fleet: Fleet, pool: Place, instance_type: str, target: int, accepted: str = ""
) -> Verdict:
    """Return the verdict on a target that the server accepts: whether the quota has room for it.

    accepted: a sentence on what the server would do then; empty if the form says it.
    """
    zone = fleet.zones.get(pool.cluster, "")
    room = find_room(fleet, zone, instance_type, pool)
    if target <= room.left:
        return Verdict(ACCEPTED, accepted)
    text = describe_room(fleet, zone, instance_type, pool)
    fits = f" A target of {room.left:,} would fit." if room.left else ""
    waits = "Until this target fits, no further Node joins."
    return Verdict(WAITS, f"The server would accept it. {text}{fits} {waits}")
