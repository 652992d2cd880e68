"""The commands of operators for real machines."""

from typing import Literal

from nodepool.contract.messages import Command, OfMachine
from nodepool.contract.real_machines import Sentence


class SetMachinePower(Command, OfMachine):
    """Powers a machine on or off, or resets it; only out of service or in maintenance.

    power: the desired power state; `reset` powers the machine off, then on.
    """

    power: Literal["on", "off", "reset"]


class MaintainMachine(Command, OfMachine):
    """Takes a machine into maintenance, or out of it.

    In maintenance only `SetMachinePower` changes its power, and it boots for no NodePool.

    maintenance: whether people work on the machine from now on.
    reason: why people work on the machine, for other operators.
    """

    maintenance: bool = True
    reason: Sentence = ""


class VerifyMachine(Command, OfMachine):
    """Reads all parts of a machine; a machine out of service comes back if they are sound."""
