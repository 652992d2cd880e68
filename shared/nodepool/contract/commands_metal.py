"""What operators ask of real machines."""

from typing import Literal

from nodepool.contract.messages import Command, OfMachine
from nodepool.contract.real_machines import Sentence


class SetMachinePower(Command, OfMachine):
    """Powers a machine on or off, or resets it; only out of service or in maintenance.

    power: the power state that it is to have; a reset powers it off, then on.
    """

    power: Literal["on", "off", "reset"]


class MaintainMachine(Command, OfMachine):
    """Takes a machine into maintenance, or out of it.

    In maintenance only `SetMachinePower` changes its power, and it boots for no NodePool.

    maintenance: whether people work on it from now on.
    reason: why, for others who look at it.
    """

    maintenance: bool = True
    reason: Sentence = ""


class VerifyMachine(Command, OfMachine):
    """Reads a machine completely; one out of service comes back if nothing is wrong with it."""
