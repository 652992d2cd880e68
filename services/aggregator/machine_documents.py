"""A machine as the read model shows it to operators."""

from aggregator.machines import state_of
from aggregator.objects import MachineObject
from aggregator.real_machines import ONBOARD, RealMachine
from aggregator.status import Document
from nodepool.contract.keys import PoolKey, pool_path
from nodepool.contract.model import API_VERSION
from nodepool.contract.moments import rfc3339
from nodepool.placement.machines import TRIAGE


def machine_document(item: MachineObject) -> Document:
    """Return a machine as an object of Kubernetes."""
    machine = item.machine
    shown: dict[str, object] = {"state": state_of(machine).capitalize()}
    if machine.holder == ONBOARD:
        shown["state"] = ONBOARD.capitalize()
    if machine.holder == TRIAGE:
        shown["state"] = item.status.state.value.capitalize()
    if shown["state"] == "Assigned":
        org, cluster, pool = pool_path(PoolKey(machine.holder))
        shown |= {"org": org, "cluster": cluster, "nodePool": pool, "node": machine.name}
    cause = item.status.cause or ("it is out of service" if machine.out else "")
    if cause:
        shown["cause"] = cause
    if machine.out:
        shown["outOfService"] = True
    faults = item.status.faults
    if faults is not None:
        shown["fault"] = faults.failing or faults.fault
    if item.real is not None:
        shown |= _real_machine(item.real)
    return {
        "apiVersion": API_VERSION,
        "kind": "Machine",
        "metadata": {
            "name": machine.name,
            "resourceVersion": str(item.version),
            "creationTimestamp": rfc3339(item.status.added),
            "labels": {
                "node.kubernetes.io/instance-type": machine.instance_type,
                "topology.kubernetes.io/zone": machine.zone,
                **machine.labels,
            },
        },
        "spec": {"instanceType": machine.instance_type, "zone": machine.zone},
        "status": shown,
    }


def _real_machine(real: RealMachine) -> Document:
    """Return the part of the status that only a real machine has."""
    problems = sorted(real.problems.items())
    shown: dict[str, object] = {"power": real.power or "Unknown"}
    if problems:
        shown["fault"] = ",".join(type_ for type_, _ in problems)
        shown["conditions"] = [
            {
                "type": type_,
                "status": "True",
                "message": problem.message,
                "lastTransitionTime": rfc3339(problem.since),
            }
            for type_, problem in problems
        ]
    if real.maintained is not None:
        shown["maintenance"] = {"since": rfc3339(real.maintained), "reason": real.reason}
    if real.wiped is not None:
        shown["lastWiped"] = rfc3339(real.wiped)
    if real.declared is None:
        shown["declared"] = False
    shown["log"] = [{"time": rfc3339(each.time), "text": each.text} for each in real.entries]
    return shown
