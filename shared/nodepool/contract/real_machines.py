"""The types in the messages about real machines."""

from typing import Annotated, Final, Literal

from pydantic import Field

from nodepool.contract.grammar import TEXT_LIMIT
from nodepool.contract.words import Word

PROVIDER: Final = "metal"
"""The provider of real machines: the name of its service, and in the catalog."""


class Power(Word):
    """The power state of a machine; UNKNOWN stands for anything that Redfish does not define."""

    ON = "On"
    OFF = "Off"
    POWERING_ON = "PoweringOn"
    POWERING_OFF = "PoweringOff"
    PAUSED = "Paused"
    UNKNOWN = "Unknown"


SENTENCES_MAX: Final = 16
"""The most reasons that a reading names."""
Sentence = Annotated[str, Field(max_length=TEXT_LIMIT)]
WIPE_MINUTES_MAX: Final = 2_880
"""The longest that a wipe may take, in minutes."""
Number = Annotated[int, Field(ge=0)]
PowerAction = Literal["shutdown", "off", "on"]
"""What a request does to the power of a machine; `shutdown` asks its system first."""
BootFrom = Literal["", "cluster", "wipe"]
"""What a machine boots from once: its own setting, the profile for its cluster, or for a wipe."""
Purpose = Literal["", "look", "verify", "return"]
"""Why a machine is checked: to see it, to verify its Node, or to bring it back into service."""
MachineCondition = Literal[
    "ControllerSilent", "OtherMachine", "OtherType", "Unfit", "PowerStuck", "WipeWaits"
]
"""A problem of a machine, whether or not it is a Node.

ControllerSilent: its controller does not answer.
OtherMachine: the machine at the address does not show the declared serial number, or has another
    name.
OtherType: it was added with another type or serial number, or without the wipes that are declared.
Unfit: a part has failed, or differs from the inventory.
PowerStuck: requests have not brought it into the desired power state.
WipeWaits: it is to be wiped, and as many machines of its zone are wiped as may be at a time.
"""
