"""The commands that create and delete Pods of a NodePool, and the end of finished Pods."""

from collections.abc import Iterator
from datetime import timedelta

from fleet import Says
from fleet.machine import Machine
from fleet.pods import ending, observe_node, without_pod
from fleet.refusal import Refusal, creating, deleting
from fleet.scheduling import change_pod
from fleet.state import State
from fleet.waiting import create_pod
from nodepool.contract.commands import CreatePod, DeletePod
from nodepool.contract.events import PodChanged
from nodepool.contract.keys import MachineKey
from nodepool.contract.outcomes import CommandOutcome, build_acceptance, build_refusal
from nodepool.service import Context


def create(
    state: State, command: CreatePod, context: Context
) -> Iterator[PodChanged | CommandOutcome]:
    """Yield the outcome and, if the command is accepted, the Pod that waits for a Node."""
    pool = creating(command, state.pools.get(command.key))
    if isinstance(pool, Refusal):
        yield build_refusal(command, pool.field, pool.message, pool.reason)
        return
    yield build_acceptance(command, "created")
    pod = command.pod.model_copy(update={"terminating": False})
    yield create_pod(command.key, pool, pod, context.position)


def delete(state: State, command: DeletePod, context: Context) -> Iterator[Says | CommandOutcome]:
    """Yield the outcome, then the Pod: terminating, or gone if it has no grace period or Node."""
    pod = deleting(command, state.pools.get(command.key))
    if isinstance(pod, Refusal):
        yield build_refusal(command, pod.field, pod.message, pod.reason)
        return
    name = command.name
    grace_s = pod.pod.grace_s if command.grace_s is None else command.grace_s
    machine = state.node_of(pod)
    if pod.machine is None or machine is None:
        yield build_acceptance(command, "deleted")
        yield change_pod(command.key, pod, "Gone", "Deleted")
        return
    after = ending(machine, name, context.time + timedelta(seconds=grace_s))
    if after == machine:
        yield build_acceptance(command, "unchanged")
        return
    yield build_acceptance(command, "deleted")
    if not grace_s:
        after = without_pod(machine, name)
        yield change_pod(command.key, pod, "Gone", "Deleted")
    else:
        yield change_pod(command.key, pod, "Terminating", "Deleted", grace_s)
    if after.pods != machine.pods and machine.answers:
        yield observe_node(pod.machine, after, after.pods)


def complete_pod(
    state: State, key: MachineKey, machine: Machine, name: str
) -> Iterator[PodChanged]:
    """Yield that a Pod is gone because its work is done, if the Pod belongs to the NodePool."""
    pool = state.pool_of(machine)
    pod = pool.pod_on(key, name) if pool is not None else None
    if machine.pool is not None and pod is not None:
        yield change_pod(machine.pool, pod, "Gone", "Completed")
