"""Which rules an event of a provider breaks, and which reports it owes."""

from collections.abc import Iterator
from typing import assert_never

from nodepool.contract import events as on
from nodepool.contract.affinity import TOPOLOGY_KEYS
from nodepool.contract.catalog import is_offered, provider_of
from nodepool.contract.keys import MachineKey
from nodepool.contract.node_states import STATE_MOVES, MachineState
from nodepool.contract.providers import ProviderDuty, ProviderRule, ProviderSays
from support.providers.facts import READY, Machine, State, Stay

BootReport = on.MachineBooted | on.MachineFailed
_IN_SERVICE = MachineState.PRODUCTION
NodeReport = on.NodeVerified | on.NodeConditionChanged | on.NodeObserved


def find_broken_rules(state: State, provider: str, event: ProviderSays) -> Iterator[ProviderRule]:
    """The rules that an event breaks, given what the provider had heard and said before."""
    if provider_of(event.zone) != provider:
        yield "ZoneOfAnotherProvider"
    if isinstance(event, on.MachineAdded):
        yield from _of_addition(state, event)
    elif event.machine_key not in state.machines:
        yield "MachineUnknown"
    elif isinstance(event, on.MachineRepaired | on.MachineStateChanged):
        yield from _of_place(state.machines[event.machine_key], event)
    elif isinstance(event, on.MachineWiped):
        yield from _of_wipe(state.machines[event.machine_key], event)
    elif not isinstance(event, on.MachineUpdateFailed):
        yield from _of_stay(state, event)


def _of_addition(state: State, event: on.MachineAdded) -> Iterator[ProviderRule]:
    if event.machine_key in state.machines:
        yield "MachineAddedTwice"
    if not is_offered(event.instance_type, event.zone) or set(event.labels) - {*TOPOLOGY_KEYS}:
        yield "MachineUnfit"


def _of_place(
    machine: Machine, event: on.MachineRepaired | on.MachineStateChanged
) -> Iterator[ProviderRule]:
    before = machine.state
    is_in_service = before is _IN_SERVICE
    if isinstance(event, on.MachineRepaired):
        if is_in_service or machine.wiping:
            yield "RepairNotNeeded"
        return
    is_taken_out = event.state is MachineState.TRIAGE and before is not MachineState.ZAP_FAIL
    may_move = not is_in_service or (is_taken_out and machine.is_free(event.assignment))
    if event.state not in STATE_MOVES[before] or event.state is _IN_SERVICE or not may_move:
        yield "StateOutOfOrder"
    if (event.state is MachineState.ZAP_FAIL or is_taken_out) and not event.cause:
        yield "CauseMissing"


def _of_wipe(machine: Machine, event: on.MachineWiped) -> Iterator[ProviderRule]:
    is_over = machine.stay is None and machine.assignment == event.assignment
    is_new = not event.assignment
    if not (machine.wipes and is_over) or (is_new and not machine.unwiped):
        yield "WipeNotRequested"
    elif not machine.unwiped:
        yield "WipedTwice"


def _of_stay(state: State, event: BootReport | NodeReport) -> Iterator[ProviderRule]:
    stay = state.stay_of(event.machine_key, event.assignment)
    match event:
        case on.MachineBooted() | on.MachineFailed():
            yield from _of_boot(stay, event)
        case on.NodeVerified():
            yield from _of_verification(stay, event)
        case on.NodeConditionChanged() | on.NodeObserved():
            yield from _of_node(state, stay, event)
        case _:
            assert_never(event)


def _of_boot(stay: Stay | None, event: BootReport) -> Iterator[ProviderRule]:
    if stay is None or stay.boot != event.boot:
        yield "BootNotRequested"
    elif stay.outcome == "failed" and isinstance(event, on.MachineBooted):
        yield "FailedMachineBooted"
    elif stay.outcome:
        yield "BootReportedTwice"
    if isinstance(event, on.MachineFailed) and not event.cause:
        yield "CauseMissing"


def _of_verification(stay: Stay | None, event: on.NodeVerified) -> Iterator[ProviderRule]:
    if stay is None or stay.boot != event.boot or not stay.verification:
        yield "VerificationNotRequested"
    elif stay.verification == "reported":
        yield "NodeVerifiedTwice"
    elif stay.is_silent:
        yield "SilentNodeReported"
    if not (event.passed or event.cause):
        yield "CauseMissing"


def _of_node(
    state: State, stay: Stay | None, event: on.NodeConditionChanged | on.NodeObserved
) -> Iterator[ProviderRule]:
    if stay is None or not stay.is_node:
        yield "NodeUnknown"
        return
    is_of_agent = isinstance(event, on.NodeObserved) or event.type == READY
    if state.has_agent(stay) and is_of_agent:
        yield "ReportedBesideAgent"
    match event:
        case on.NodeObserved():
            if stay.is_silent and not stay.is_booting:
                yield "SilentNodeReported"
            is_unnumbered = event.unschedulable and not event.cordon
            is_new = event.cordon > stay.marks.cordon or event.lock > stay.newest_lock
            if is_unnumbered or is_new:
                yield "MarkNotHeard"
        case on.NodeConditionChanged(type=type_, request=request):
            is_answer = type_ == READY and request == stay.request
            if request and not is_answer:
                yield "AnswerNotRequested"
            content = (event.status, event.reason, event.message)
            if not request and stay.conditions.get(type_) == content:
                yield "ConditionUnchanged"
        case _:
            assert_never(event)


def find_owed_reports(state: State) -> Iterator[tuple[MachineKey, ProviderDuty]]:
    """What the provider has still to report, by machine."""
    for key, machine in sorted(state.machines.items()):
        stay = machine.stay
        if machine.wiping:
            yield key, "WipeNotReported"
        if stay is None:
            continue
        if stay.is_booting:
            yield key, "BootNotReported"
        if stay.verification == "requested" and not stay.is_silent:
            yield key, "VerificationNotReported"
        if stay.request:
            yield key, "AnswerMissing"
        if stay.is_node and not (stay.is_observed or stay.is_silent or stay.is_booting):
            yield key, "MarksNotObserved"
