"""Who may send which command: permissions, documentation and tests derive from this one table."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, get_args

from nodepool.contract.commands import (
    AddMachines,
    ApplyNodePool,
    BreakMachine,
    CordonNode,
    CreatePod,
    DeleteNodePool,
    DeletePod,
    DeleteQuota,
    DrainNode,
    FindCapacity,
    PreemptNode,
    RebootNode,
    RegisterCluster,
    RepairMachine,
    ReserveNode,
    RunPod,
    ScaleNodePool,
    SetQuota,
    StopPod,
    UncordonNode,
)
from nodepool.contract.commands_metal import MaintainMachine, SetMachinePower, VerifyMachine
from nodepool.contract.commands_slurm import LockNode, UnlockNode
from nodepool.contract.commands_spot import AcknowledgePreemption, ReclaimCapacity, ReturnCapacity
from nodepool.contract.messages import Command

Role = Literal["viewer", "editor", "owner", "agent", "operator"]
"""What a sender may do.

viewer: reads what belongs to an organisation.
editor: changes the NodePools of the organisation and works on their Nodes.
owner: also deletes NodePools and decides what Nodes are for.
agent: speaks for one Kubernetes cluster of the organisation.
operator: runs the fleet, and may send every command for every organisation.
"""
ROLES: Final[tuple[Role, ...]] = get_args(Role)

_FLEET: Final = frozenset[Role]({"operator"})
_OWNERS: Final = _FLEET | frozenset[Role]({"owner"})
_EDITORS: Final = _OWNERS | frozenset[Role]({"editor"})
_PEOPLE: Final = _EDITORS | frozenset[Role]({"viewer"})
_AGENT: Final = frozenset[Role]({"agent"})

SENDERS: Final[Mapping[type[Command], frozenset[Role]]] = MappingProxyType(
    {
        # The limits of an organisation and the machines of the fleet.
        SetQuota: _FLEET,
        DeleteQuota: _FLEET,
        AddMachines: _FLEET,
        BreakMachine: _FLEET,
        RepairMachine: _FLEET,
        SetMachinePower: _FLEET,
        MaintainMachine: _FLEET,
        VerifyMachine: _FLEET,
        ReclaimCapacity: _FLEET,
        ReturnCapacity: _FLEET,
        RunPod: _FLEET,
        StopPod: _FLEET,
        # A cluster: its agent registers the cluster that it runs in.
        RegisterCluster: _FLEET | _AGENT,
        # The NodePools of an organisation; the agent sends what people change in the cluster.
        ApplyNodePool: _EDITORS | _AGENT,
        ScaleNodePool: _EDITORS,
        DeleteNodePool: _OWNERS | _AGENT,
        # The Nodes of a NodePool.
        CordonNode: _EDITORS | _AGENT,
        UncordonNode: _EDITORS | _AGENT,
        DrainNode: _EDITORS,
        RebootNode: _EDITORS,
        LockNode: _EDITORS,
        UnlockNode: _EDITORS,
        AcknowledgePreemption: _EDITORS,
        PreemptNode: _OWNERS,
        ReserveNode: _OWNERS,
        # The Pods of a NodePool without Kubernetes.
        CreatePod: _EDITORS,
        DeletePod: _EDITORS,
        # A question in the form of a command: it changes nothing.
        FindCapacity: _PEOPLE,
    }
)
"""The roles that may send each command; a command without a row may be sent by nobody."""


def commands_of(role: Role) -> tuple[type[Command], ...]:
    """Return the commands that a role may send, in the order of the table."""
    return tuple(command for command, roles in SENDERS.items() if role in roles)
