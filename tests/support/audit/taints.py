"""Rules for the reservation of Nodes: what their label says, their taint says too."""

from hashlib import sha256

from nodepool.contract.catalog import INSTANCE_TYPES, Kind
from nodepool.contract.events import CWNodeRegistered, NodeUpdated
from nodepool.contract.messages import Message
from support.audit.facts import Facts, Origin, Violation

STATE = "node.coreweave.cloud/state"
RESERVED = "node.coreweave.cloud/reserved"
CONTROL_PLANE = "control-plane"
OF_KIND = {
    Kind.GPU: ("is_gpu", "true", "PreferNoSchedule"),
    Kind.CPU: ("is_cpu_compute", None, "NoSchedule"),
}
"""The taint of all Nodes of a kind."""


def check(facts: Facts, message: Message, _origin: Origin) -> None:
    """Check the labels and taints with which a Node joins, or which it gets later."""
    if not isinstance(message, CWNodeRegistered | NodeUpdated):
        return
    reserved, state = message.labels[RESERVED], message.labels[STATE]
    owners = (message.org, CONTROL_PLANE) if state == "production" else (state,)
    if reserved not in owners:
        raise Violation(f"{message.node} is in {state}, and reserved for {reserved}")
    taints = {(taint.key, taint.value, taint.effect) for taint in message.taints}
    digest = sha256(reserved.encode()).hexdigest()[:10]
    kind = INSTANCE_TYPES[facts.stay(message).pool.ledger[2]].kind
    is_tainted = facts.taints_production or state != "production"
    expected = [OF_KIND[kind], *([(RESERVED, digest, "NoExecute")] if is_tainted else [])]
    for taint in expected:
        if taint not in taints:
            raise Violation(f"{message.node} is reserved for {reserved}, and lacks {taint}")
