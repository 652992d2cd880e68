"""What a provider of machines hears and says: the boundary between decisions and machines.

A provider has the machines of some zones: it powers them on, boots and verifies them, and says what
it observes. The `fleet` is the provider of simulated machines. `services.PROVIDERS` names all
providers, and the catalog says which of them has a zone. `shared/PROVIDERS.md` is the page of this
contract; `tests/conformance/` tries a provider against it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, get_args

from nodepool.contract import events as on
from nodepool.contract.commands import (
    AddMachines,
    BreakMachine,
    CreatePod,
    DeletePod,
    RepairMachine,
    RunPod,
    StopPod,
)

ProviderHears = (
    on.ClusterRegistered
    | on.CWNodeAssigned
    | on.CWNodeRegistered
    | on.CWNodeRegistrationFailed
    | on.NodeUpdated
    | on.CWDrainNode
    | on.NodeReportRequested
    | on.CWNodeDeleted
)
"""What every provider hears."""
ProviderSays = (
    on.MachineAdded
    | on.MachineRepaired
    | on.MachineStateChanged
    | on.MachineWiped
    | on.MachineBooted
    | on.MachineFailed
    | on.NodeVerified
    | on.NodeConditionChanged
    | on.NodeObserved
    | on.MachineUpdateFailed
)
"""What every provider may say of its own machines."""
SimulationHears = (
    AddMachines
    | BreakMachine
    | RepairMachine
    | RunPod
    | StopPod
    | CreatePod
    | DeletePod
    | on.NodePoolValidated
    | on.CWNodePoolDeleted
    | on.NodeTemplateChanged
)
"""What only the fleet hears: commands to simulated machines, and what their Pods depend on."""
SimulationSays = on.MachineBroken | on.HeartbeatsStopped | on.PodChanged | on.PodUpdateFailed
"""What only the fleet says: the faults that commands caused, and Pods where no agent is."""

ProviderRule = Literal[
    "AnswerNotRequested",
    "BootNotRequested",
    "BootReportedTwice",
    "CauseMissing",
    "ConditionUnchanged",
    "FailedMachineBooted",
    "MachineAddedTwice",
    "MachineUnfit",
    "MachineUnknown",
    "MarkNotHeard",
    "NodeUnknown",
    "NodeVerifiedTwice",
    "RepairNotNeeded",
    "ReportedBesideAgent",
    "SilentNodeReported",
    "StateOutOfOrder",
    "VerificationNotRequested",
    "WipeNotRequested",
    "WipedTwice",
    "ZoneOfAnotherProvider",
]
"""The names of the rules; each name says what is wrong if the rule is broken."""
ProviderDuty = Literal[
    "AnswerMissing",
    "BootNotReported",
    "MarksNotObserved",
    "VerificationNotReported",
    "WipeNotReported",
]
"""The names of the reports that a provider owes; each name says what is missing."""
PROVIDER_RULES: Final[Mapping[ProviderRule, str]] = MappingProxyType(
    {
        "ZoneOfAnotherProvider": "a provider says nothing of a machine in a zone of another one",
        "MachineUnknown": "`MachineAdded` comes before everything else about a machine",
        "MachineAddedTwice": "a machine is added once",
        "MachineUnfit": "an added machine has a type that its zone offers, and topology labels",
        "BootNotRequested": "a boot is reported only if it was requested, and its stay goes on",
        "BootReportedTwice": "each boot has one outcome",
        "FailedMachineBooted": "a boot that has failed never succeeds later",
        "CauseMissing": "whatever fails names its cause",
        "VerificationNotRequested": "only a Node in phase verifying is verified, for its last boot",
        "NodeVerifiedTwice": "each verification has one result",
        "NodeUnknown": "conditions, marks and Pods are those of a Node that is registered",
        "ReportedBesideAgent": "an agent, not the provider, reports `Ready`, marks and Pods",
        "ConditionUnchanged": "a condition is reported if it changes, or if a request asks for it",
        "AnswerNotRequested": "an answer is about `Ready`, and repeats the open request",
        "SilentNodeReported": "a Node with `Ready` Unknown reports no marks, Pods or verification",
        "MarkNotHeard": "an observed cordon or lock has a number that the provider has heard",
        "RepairNotNeeded": "only a machine that is out of service is repaired",
        "StateOutOfOrder": "a machine that is free or out of service changes its state in order",
        "WipeNotRequested": "only a machine with `wipes` is wiped, after its last stay or as new",
        "WipedTwice": "a machine is wiped once after each stay",
    }
)
"""What always holds of what a provider says, given what it had heard; a breach is a bug of it."""
PROVIDER_DUTIES: Final[Mapping[ProviderDuty, str]] = MappingProxyType(
    {
        "BootNotReported": "`MachineBooted` or `MachineFailed` follows each request to boot",
        "VerificationNotReported": "`NodeVerified` follows when a Node is in phase verifying",
        "AnswerMissing": "`NodeConditionChanged` answers each `NodeReportRequested`",
        "MarksNotObserved": "`NodeObserved` follows when a cordon, a lock or a drain is requested",
        "WipeNotReported": "`MachineWiped` or the state `zap-fail` follows each request to wipe",
    }
)
"""What a provider owes sooner or later, except for a machine that does not answer."""
assert set(PROVIDER_RULES) == set(get_args(ProviderRule))
assert set(PROVIDER_DUTIES) == set(get_args(ProviderDuty))


def provider_tables() -> str:
    """Return the rules and the duties in Markdown, as the page shows them."""
    lines = ["| Rule | What always holds |", "| --- | --- |"]
    lines += [f"| `{name}` | {text} |" for name, text in PROVIDER_RULES.items()]
    lines += ["", "| Duty | What follows sooner or later |", "| --- | --- |"]
    lines += [f"| `{name}` | {text} |" for name, text in PROVIDER_DUTIES.items()]
    return "\n".join(lines)
