"""The taint that reserves Nodes in production for Pods that tolerate their organisation."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from agent.actions import Place, RecordEvent
from agent.nodes.objects import NodeObject, WantedNode
from agent.pods.objects import PodObject
from nodepool.contract.pods import reserved_taint

PODS_SHOWN: Final = 3
"""The most Pods that the Event of a Node names as the reason for a withheld taint."""


class Reserved(NamedTuple):
    """A Node without the taint that would end its Pods, and the Event that says why.

    wanted: the Node, without the taint.
    event: the Event about the Node; None if there is nothing to record, for example while the
      policy is unknown.
    """

    wanted: WantedNode
    event: RecordEvent | None


def withhold_taint(
    wanted: WantedNode,
    found: NodeObject | None,
    pods: Sequence[PodObject],
    fault: str | None,
    place: Place,
) -> Reserved | None:
    """Return the Node without the taint of its organisation; None if it may have the taint.

    The taint ends every Pod that does not tolerate it. So a Node gets the taint only if new Pods
    get the toleration, and each of its Pods has it. A Node that has the taint keeps it while new
    Pods get the toleration.

    fault: why new Pods get no toleration; empty if they get it, None if that is not known.
    """
    taint = reserved_taint(place.org)
    if taint not in wanted.taints:
        return None
    has_taint = found is not None and taint in found.taints
    if has_taint and not fault:
        return None
    ended = [each for each in pods if each.terminating_since is None and not _stays(each, place)]
    if fault == "" and not ended:
        return None
    without = replace(wanted, taints=tuple(each for each in wanted.taints if each != taint))
    why = fault or _format_pods(ended)
    if found is None or not why or fault is None:
        return Reserved(without, None)
    message = f"the taint {taint.key}={taint.value}:{taint.effect} is withheld: {why}"
    key = f"withheld.{found.uid}.{re.sub('[^a-z]+', '-', why.lower())[:40].strip('-')}"
    event = RecordEvent(
        "Node", found.name, found.uid, "Warning", "ReservedTaintWithheld", message, key
    )
    return Reserved(without, event)


def _stays(pod: PodObject, place: Place) -> bool:
    return pod.pod.tolerates(reserved_taint(place.org))


def _format_pods(pods: Sequence[PodObject]) -> str:
    names = sorted(each.pod.name for each in pods)
    more = f" and {len(names) - PODS_SHOWN} more" if len(names) > PODS_SHOWN else ""
    shown = ", ".join(names[:PODS_SHOWN])
    return f"Pods without a toleration would end: {shown}{more}; create these Pods again"
