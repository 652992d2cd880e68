"""The commands that create and delete Pods of a NodePool, and the end of finished Pods."""

from collections.abc import Iterator
from datetime import timedelta

from fleet import Says
from fleet.machine import Machine
from fleet.pods import ending, observed, without_pod
from fleet.refusal import Refusal, creating, deleting
from fleet.scheduling import changed
from fleet.state import State
from fleet.waiting import created
from nodepool.contract.commands import CreatePod, DeletePod
from nodepool.contract.events import PodChanged
from nodepool.contract.keys import MachineKey
from nodepool.contract.outcomes import CommandOutcome, accepted, refused
from nodepool.service import Context


def create(
    state: State, command: CreatePod, context: Context
) -> Iterator[PodChanged | CommandOutcome]:
    """Yield the outcome and, if the command is accepted, the Pod that waits for a Node."""
    pool = creating(command, state.pools.get(command.key))
    if isinstance(pool, Refusal):
        yield refused(command, pool.field, pool.message, pool.reason)
        return
    yield accepted(command, "created")
    pod = command.pod.model_copy(update={"terminating": False})
    yield created(command.key, pool, pod, context.position)


def delete(state: State, command: DeletePod, context: Context) -> Iterator[Says | CommandOutcome]:
    """Yield the outcome, then the Pod: terminating, or gone if it has no grace period or Node."""
    pod = deleting(command, state.pools.get(command.key))
    if isinstance(pod, Refusal):
        yield refused(command, pod.field, pod.message, pod.reason)
        return
    name = command.name
    grace_s = pod.pod.grace_s if command.grace_s is None else command.grace_s
    machine = state.node_of(pod)
    if pod.machine is None or machine is None:
        yield accepted(command, "deleted")
        yield changed(command.key, pod, "Gone", "Deleted")
        return
    after = ending(machine, name, context.time + timedelta(seconds=grace_s))
    if after == machine:
        yield accepted(command, "unchanged")
        return
    yield accepted(command, "deleted")
    if not grace_s:
        after = without_pod(machine, name)
        yield changed(command.key, pod, "Gone", "Deleted")
    else:
        yield changed(command.key, pod, "Terminating", "Deleted", grace_s)
    if after.pods != machine.pods and machine.answers:
        yield observed(pod.machine, after, after.pods)


def completed(state: State, key: MachineKey, machine: Machine, name: str) -> Iterator[PodChanged]:
    """Yield that a Pod is gone because its work is done, if the Pod belongs to the NodePool."""
    pool = state.pool_of(machine)
    pod = pool.pod_on(key, name) if pool is not None else None
    if machine.pool is not None and pod is not None:
        yield changed(machine.pool, pod, "Gone", "Completed")
