"""The documents of an inventory, as they are written in YAML."""

from collections.abc import Mapping
from typing import Final, Literal

from metal.reading import BootTarget
from nodepool.contract.model import Value

WIPE_MINUTES: Final = 240
"""How long a wipe may take if its profile does not say it, in minutes."""
API_VERSION: Final = "metal/v1alpha1"
CONFIG: Final = "{config}"
"""What stands for the address of the configuration of a boot in the address of its image."""
REPORT: Final = "{report}"
"""What stands for the address of the report of a wipe in the address of its image."""


class Reference(Value):
    """Where a secret is; exactly one of both.

    file: the path of a file that holds it in one line.
    environment: the name of the environment variable that holds it.
    """

    file: str = ""
    environment: str = ""


class Access(Value):
    """How the controllers of a rack are reached, where a machine does not say it.

    credentials: where `user:password` is.
    ca_file: the file with the authorities that may have signed the certificate of a controller.
    """

    credentials: Reference | None = None
    ca_file: str = ""


class Controller(Access):
    """How the controller of one machine is reached.

    address: `https://` and a host, perhaps with a port.
    system: the id of the machine's system, if the controller has several.
    fingerprint: `sha256:` and the SHA-256 fingerprint of its certificate, in place of authorities.
    """

    address: str
    system: str = ""
    fingerprint: str = ""


class Gpus(Value):
    """The GPUs of a machine.

    count: how many there are. model: a part of the name of their model.
    firmware_version: the version of the firmware of each GPU, as the controller tells it; empty if
        any version will do.
    """

    count: int
    model: str = ""
    firmware_version: str = ""


class Expected(Value):
    """What a machine is made of.

    serial: its serial number.
    memory_gib: its memory, as its controller tells it.
    gpus: its GPUs; those of its instance type if they are not given.
    macs: MAC addresses that it has among others.
    bios_version, controller_version: the versions of its BIOS and of the firmware of its
        controller, as its controller tells them; empty if any version will do.
    """

    serial: str
    memory_gib: int
    gpus: Gpus | None = None
    macs: tuple[str, ...] = ()
    bios_version: str = ""
    controller_version: str = ""


class Machine(Value):
    """One machine of a rack. position: the unit of the rack that it is in, counted from 1."""

    name: str
    position: int
    controller: Controller
    expected: Expected


class Rack(Value):
    """A rack of machines of one type.

    wipes: whether machines are wiped as new ones and after each stay; each keeps the value of its
        addition.
    controllers: how their controllers are reached.
    """

    api_version: Literal["metal/v1alpha1"]
    kind: Literal["Rack"]
    name: str
    zone: str
    instance_type: str
    wipes: bool = True
    controllers: Access = Access()
    machines: tuple[Machine, ...]


class Boot(Value):
    """What a machine boots.

    target: how it boots once.
    image: the address of the image; `{config}` in it stands for the address of its configuration.
    kernel_arguments: one by one; a part of the configuration.
    """

    api_version: Literal["metal/v1alpha1"]
    instance_type: str
    target: BootTarget = BootTarget.UEFI_HTTP
    image: str
    kernel_arguments: tuple[str, ...] = ()


class BootProfile(Boot):
    """What machines of a type boot to join a cluster.

    org, cluster: the cluster; empty for all clusters that have no profile of their own.
    join_token: where the token is with which a machine joins.
    """

    kind: Literal["BootProfile"]
    org: str = ""
    cluster: str = ""
    join_token: Reference


class WipeProfile(Boot):
    """What machines of a type boot to be wiped, over HTTP.

    image: the address of the image; `{report}` in it stands for the address to which the image
        reports the end. Its configuration names this address too.
    within_minutes: how long that takes at most.
    """

    kind: Literal["WipeProfile"]
    within_minutes: int = WIPE_MINUTES


InventoryDocument = Rack | BootProfile | WipeProfile
KINDS: Final[Mapping[str, type[InventoryDocument]]] = {
    kind.__name__: kind for kind in (Rack, BootProfile, WipeProfile)
}
"""The class of each kind of document."""
