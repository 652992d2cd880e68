"""Preemptions: the running ones by deadline, and the ended ones of the last seven days."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from console.view.model import Member, Place, Pool
from console.view.nodes import work_of
from console.view.words import Word
from nodepool.contract.counting import format_count
from nodepool.contract.timetable import DRAIN_AFTER, GONE_AFTER

WHOLE_S: Final = int(GONE_AFTER.total_seconds())
DRAIN_S: Final = int(DRAIN_AFTER.total_seconds())
PAST: Final = timedelta(days=7)
PAST_MAX: Final = 200
"""The most ended preemptions that are shown."""


@dataclass(frozen=True, slots=True)
class Past:
    """A preemption as the log records it.

    beneficiary: the NodePool for which the Node was requested; later, another may need it.
    drained_s, gone_s: seconds until the drain began, and until the Node had left; None before.
    late_s: by how many seconds the latest stage was late.
    """

    place: Place
    pool: str
    position: int
    began: datetime
    cause: str
    beneficiary: str
    drained_s: float | None
    gone_s: float | None
    late_s: float | None
    lost: int


@dataclass(frozen=True, slots=True)
class Running:
    """A preemption that runs: `passed_s` of its seven minutes have passed."""

    member: Member
    word: Word
    reason: str
    warned: datetime
    ends: datetime
    passed_s: int
    runs: str
    then: str


@dataclass(frozen=True, slots=True)
class PreemptionsPage:
    """What the page shows; `last` is when the last preempted Node is gone."""

    title: str
    running: tuple[Running, ...]
    last: datetime | None
    past: tuple[Past, ...]
    past_summary: str
    hidden: int


def build_preemptions(
    pools: Sequence[Pool], history: Sequence[Past], now: datetime
) -> PreemptionsPage:
    """Return the page; `history` are the preemptions of the last days, ended or not."""
    causes = {(each.place, each.pool): each for each in history}
    running = [
        _running(member, causes.get((member.place, pool.place.name)), now)
        for pool in pools
        for member in pool.members
        if member.facts.preempted_since is not None
    ]
    running.sort(key=lambda each: (each.ends, each.member.place))
    past = sorted(
        (each for each in history if each.gone_s is not None),
        key=lambda each: each.position,
        reverse=True,
    )
    count = len(running)
    title = f"{format_count(count)} {'is' if count == 1 else 'are'} being preempted"
    return PreemptionsPage(
        title if running else "No Node is being preempted",
        tuple(running),
        max((each.ends for each in running), default=None),
        tuple(past[:PAST_MAX]),
        _summary(past),
        max(0, len(past) - PAST_MAX),
    )


def _running(member: Member, known: Past | None, now: datetime) -> Running:
    node = member.facts
    assert node.preempted_since is not None, "only preempted Nodes are listed"
    warned = node.preempted_since
    passed = min(max(0, int((now - warned).total_seconds())), WHOLE_S)
    names = ", ".join(name for name, _ in node.blocking) or work_of(node)
    if not names:
        then = "nothing runs on the Node"
    elif node.is_warned:
        then = "asked to end 2 min after the warning"
    else:
        then = "asked to end"
    return Running(
        member,
        member.word,
        _reason(known),
        warned,
        warned + GONE_AFTER,
        passed,
        names,
        then,
    )


def _reason(known: Past | None) -> str:
    if known is None:
        return ""
    if known.beneficiary:
        return f"requested for {known.beneficiary}"
    return {"Requested": "requested by a user", "Reclaimed": "an operator reclaims machines"}.get(
        known.cause, known.cause
    )


def _summary(past: Sequence[Past]) -> str:
    if not past:
        return ""
    late = [each.late_s for each in past if each.late_s is not None]
    lost = sum(each.lost for each in past)
    worst = f", at most {max(late):.2f} s late" if late else ", none at its deadline"
    return f"{len(past)} ended, {format_count(lost, 'Pod')} lost{worst}"
