"""What makes a Node active: its Pods, and a Slurm job that has its lock."""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from nodepool.contract.pods import Pod, PodClass


class Workload(NamedTuple):
    """A Pod or a Slurm job that makes its Node active.

    since: when it was observed first.
    blocks: whether a drain for a scale-down waits for it.
    """

    name: str
    since: datetime
    blocks: bool


def workloads(
    before: Iterable[Workload], pods: Iterable[Pod], now: datetime
) -> tuple[Workload, ...]:
    """These Pods by name, each observed now for the first time if it was not among those before."""
    known = {workload.name: workload.since for workload in before}
    return tuple(
        Workload(pod.name, known.get(pod.name, now), _blocks(pod))
        for pod in sorted(pods, key=lambda pod: pod.name)
    )


def _blocks(pod: Pod) -> bool:
    return pod.interruption is PodClass.BLOCKING and not pod.terminating
