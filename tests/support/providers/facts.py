"""What a provider has heard and said of each machine, folded message by message."""

from dataclasses import dataclass, replace
from typing import Literal, assert_never

from immutables import Map

from nodepool.contract import events as on
from nodepool.contract.keys import ClusterKey, MachineKey, cluster_key, cluster_of
from nodepool.contract.model import NodePhase
from nodepool.contract.node_states import MachineState
from nodepool.contract.providers import ProviderHears, ProviderSays

READY = "Ready"
"""The condition that shows whether a Node is silent."""


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks of a Node, as they were requested: its cordon and its lock."""

    unschedulable: bool = False
    cordon: int = 0
    lock: int = 0


@dataclass(frozen=True, slots=True)
class Stay:
    """One time of a machine in a NodePool.

    assignment: its number.
    cluster: the cluster of the NodePool.
    is_node: whether the Node is registered.
    phase: the phase of the Node.
    boot: the number of the last boot that was requested.
    outcome: what was said of this boot.
    verification: whether a verification was requested or reported.
    conditions: status, reason and message of each condition, as last said.
    request: the number of the request that is not answered; 0 for none.
    marks: the marks that the Node should have.
    newest_lock: the number of the newest lock that it should have had.
    is_observed: whether it was observed since a mark or a drain was requested.
    """

    assignment: int
    cluster: ClusterKey
    is_node: bool = False
    phase: NodePhase = NodePhase.BOOTING
    boot: int = 0
    outcome: Literal["", "booted", "failed"] = ""
    verification: Literal["", "requested", "reported"] = ""
    conditions: Map[str, tuple[str, str, str]] = Map()
    request: int = 0
    marks: Marks = Marks()
    newest_lock: int = 0
    is_observed: bool = True

    @property
    def is_silent(self) -> bool:
        """Whether its Node was said to be silent."""
        return READY in self.conditions and self.conditions[READY][0] == "Unknown"

    @property
    def is_booting(self) -> bool:
        """Whether a boot was requested and not reported."""
        return not self.outcome


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine that was added.

    state: its place in the data centre.
    assignment: the number of its last stay, which may be over.
    stay: its current stay.
    wipes: whether it is wiped after each stay.
    unwiped: whether it was new, or a stay has begun, since it was wiped.
    wiping: whether its wipe is requested, and neither done nor failed.
    """

    state: MachineState = MachineState.PRODUCTION
    assignment: int = 0
    stay: Stay | None = None
    wipes: bool = False
    unwiped: bool = False
    wiping: bool = False

    def is_free(self, assignment: int) -> bool:
        """Whether no NodePool has had the machine since this stay, and nothing is to be wiped."""
        return self.stay is None and self.assignment == assignment and not self.wiping

    def returned(self) -> "Machine":
        """The machine that no stay and no triage holds any more: its wipe is requested if any."""
        place = MachineState.ZAP if self.unwiped else MachineState.PRODUCTION
        return replace(self, stay=None, state=place, wiping=self.unwiped)


@dataclass(frozen=True, slots=True)
class State:
    """All machines of a provider, and the clusters that an agent connects to Kubernetes."""

    machines: Map[MachineKey, Machine] = Map()
    agents: Map[ClusterKey, bool] = Map()

    def stay_of(self, key: MachineKey, assignment: int) -> Stay | None:
        """The stay of a machine that has this number, unless it is over."""
        machine = self.machines.get(key)
        stay = machine.stay if machine is not None else None
        return stay if stay is not None and stay.assignment == assignment else None

    def has_agent(self, stay: Stay) -> bool:
        """Whether an agent reports what there is to report of the Node."""
        return stay.cluster in self.agents

    def with_machine(self, key: MachineKey, machine: Machine) -> "State":
        """The state with a machine changed."""
        return replace(self, machines=self.machines.set(key, machine))


def fold_heard(state: State, message: ProviderHears) -> State:
    """The state after a message that the provider hears; one about another stay is ignored."""
    match message:
        case on.ClusterRegistered(org=org, cluster=cluster, kubernetes=has_agent):
            key = cluster_key(org, cluster)
            return _hand_over(state, key) if has_agent else state
        case on.CWNodeAssigned():
            return _begin_stay(state, message)
        case _:
            stay = state.stay_of(message.machine_key, message.assignment)
            return state if stay is None else _fold_of_stay(state, stay, message)


def _hand_over(state: State, cluster: ClusterKey) -> State:
    """The state in which an agent reports the Nodes of a cluster from now on."""
    state = replace(state, agents=state.agents.set(cluster, True))
    for key, machine in state.machines.items():
        if machine.stay is not None and machine.stay.cluster == cluster:
            conditions = Map({n: c for n, c in machine.stay.conditions.items() if n != READY})
            stay = replace(machine.stay, conditions=conditions, request=0, is_observed=True)
            state = state.with_machine(key, replace(machine, stay=stay))
    return state


def _begin_stay(state: State, message: on.CWNodeAssigned) -> State:
    key, machine = message.machine_key, state.machines.get(message.machine_key)
    if machine is None or message.assignment <= machine.assignment:
        return state
    stay = Stay(message.assignment, cluster_of(message.key))
    # A stay that begins too early ends the wipe: the next one is requested after this stay.
    after = replace(
        machine,
        assignment=message.assignment,
        stay=stay,
        unwiped=machine.wipes,
        wiping=False,
    )
    return state.with_machine(key, after)


def _fold_of_stay(
    state: State,
    stay: Stay,
    message: on.CWNodeRegistered
    | on.CWNodeRegistrationFailed
    | on.NodeUpdated
    | on.CWDrainNode
    | on.NodeReportRequested
    | on.CWNodeDeleted,
) -> State:
    key = message.machine_key
    machine, has_agent = state.machines[key], state.has_agent(stay)
    match message:
        case on.CWNodeRegistered(phase=phase):
            after = _in_phase(replace(stay, is_node=True), phase)
        case on.NodeUpdated():
            after = _update(stay, message, has_agent=has_agent)
        case on.CWDrainNode():
            after = replace(stay, is_observed=has_agent)
        case on.NodeReportRequested(request=request):
            after = stay if has_agent else replace(stay, request=request)
        case on.CWNodeRegistrationFailed() | on.CWNodeDeleted():
            is_broken = isinstance(message, on.CWNodeRegistrationFailed) or message.triage
            broken = replace(machine, stay=None, state=MachineState.TRIAGE)
            return state.with_machine(key, broken if is_broken else machine.returned())
        case _:
            assert_never(message)
    return state.with_machine(key, replace(machine, stay=after))


def _update(stay: Stay, message: on.NodeUpdated, *, has_agent: bool) -> Stay:
    marks = Marks(message.unschedulable, message.cordon, message.lock)
    is_observed = has_agent or (stay.is_observed and marks == stay.marks)
    newest_lock = max(stay.newest_lock, message.lock)
    stay = replace(stay, marks=marks, newest_lock=newest_lock, is_observed=is_observed)
    if message.phase is NodePhase.REBOOTING and message.boot > stay.boot:
        stay = replace(stay, boot=message.boot, outcome="")
    return _in_phase(stay, message.phase)


def _in_phase(stay: Stay, phase: NodePhase) -> Stay:
    begins = phase is NodePhase.VERIFYING and stay.phase is not phase
    if begins:
        return replace(stay, phase=phase, verification="requested")
    is_verifying = phase is NodePhase.VERIFYING
    return replace(stay, phase=phase, verification=stay.verification if is_verifying else "")


def fold_said(state: State, message: ProviderSays) -> State:
    """The state after an event that the provider says."""
    key = message.machine_key
    match message:
        case on.MachineAdded():
            added = Machine(wipes=message.wipes, unwiped=message.unwiped).returned()
            return state.with_machine(key, state.machines.get(key, added))
        case on.MachineRepaired() | on.MachineStateChanged() | on.MachineWiped():
            known = state.machines.get(key)
            return state if known is None else state.with_machine(key, _move(known, message))
        case on.MachineUpdateFailed():
            return state
        case _:
            stay = state.stay_of(key, message.assignment)
            if stay is None:
                return state
            machine = replace(state.machines[key], stay=_fold_report(stay, message))
            return state.with_machine(key, machine)


def _move(
    machine: Machine, message: on.MachineRepaired | on.MachineStateChanged | on.MachineWiped
) -> Machine:
    match message:
        case on.MachineRepaired():
            return machine.returned()
        case on.MachineStateChanged(state=place):
            return replace(machine, state=place, wiping=False)
        case on.MachineWiped():
            place = MachineState.PRODUCTION if machine.wiping else machine.state
            return replace(machine, state=place, unwiped=False, wiping=False)
        case _:
            assert_never(message)


def _fold_report(
    stay: Stay,
    message: on.MachineBooted
    | on.MachineFailed
    | on.NodeVerified
    | on.NodeConditionChanged
    | on.NodeObserved,
) -> Stay:
    match message:
        case on.MachineBooted() | on.MachineFailed() if message.boot != stay.boot:
            return stay
        case on.MachineBooted():
            return replace(stay, outcome="booted")
        case on.MachineFailed():
            return replace(stay, outcome="failed")
        case on.NodeVerified():
            return replace(stay, verification="reported")
        case on.NodeConditionChanged():
            content = (message.status, message.reason, message.message)
            stay = replace(stay, conditions=stay.conditions.set(message.type, content))
            return replace(stay, request=0) if message.request == stay.request else stay
        case on.NodeObserved():
            marks = stay.marks
            seen = Marks(message.unschedulable, message.cordon, message.lock)
            return replace(stay, is_observed=seen == marks)
        case _:
            assert_never(message)
