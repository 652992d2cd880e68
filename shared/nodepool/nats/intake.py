"""Whether a stream takes messages, according to the server's stream info; pure."""

from collections.abc import Mapping, Sequence


def intake_fault(
    config: Mapping[str, object], state: Mapping[str, object], subjects: Sequence[str]
) -> str:
    """Return why a stream takes no messages; "" if it takes them.

    config, state: the parts of these names in the server's description of the stream.
    subjects: the subjects that the stream must take.
    """
    if config.get("sealed"):
        return "it is sealed"
    own = config.get("subjects")
    own = [str(each) for each in own] if isinstance(own, list) else []
    missing = [subject for subject in subjects if not any(_covers(each, subject) for each in own)]
    if missing:
        return f"its subjects lack {', '.join(missing)}"
    if config.get("discard") == "new":
        for limit, used in (("max_msgs", "messages"), ("max_bytes", "bytes")):
            most, count = config.get(limit), state.get(used)
            if isinstance(most, int) and isinstance(count, int) and 0 < most <= count:
                return f"its {limit} is {most}, and it holds {count}"
    return ""


def _covers(wide: str, subject: str) -> bool:
    """Return whether every subject that `subject` matches is one that `wide` matches."""
    if wide == subject:
        return True
    own, wanted = wide.split("."), subject.split(".")
    for place, token in enumerate(own):
        if token == ">":
            return len(wanted) > place
        if place >= len(wanted) or wanted[place] == ">":
            return False
        if token not in ("*", wanted[place]):
            return False
    return len(own) == len(wanted)
