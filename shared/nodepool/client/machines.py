"""The real machines: their power, and whether people work on them."""

from typing import TYPE_CHECKING, Literal

from nodepool.client.commands import Commands

if TYPE_CHECKING:
    from nodepool.contract.events import CommandAccepted


class Machines:
    """Real machines, as `client.machines`; the commands are those of operators.

    An accepted command begins the work; the status of the machine in the read model shows the rest.
    """

    def __init__(self, commands: Commands) -> None:
        self._send = commands.send

    async def set_power(
        self, zone: str, machine: str, power: Literal["on", "off", "reset"]
    ) -> "CommandAccepted":
        """Have a machine powered on or off, or reset; out of service or in maintenance only."""
        from nodepool.contract.commands_metal import SetMachinePower

        return await self._send(SetMachinePower(zone=zone, machine=machine, power=power))

    async def maintain(
        self, zone: str, machine: str, *, maintenance: bool, reason: str = ""
    ) -> "CommandAccepted":
        """Take a machine into maintenance, so that nothing else touches it, or out of it."""
        from nodepool.contract.commands_metal import MaintainMachine

        return await self._send(
            MaintainMachine(zone=zone, machine=machine, maintenance=maintenance, reason=reason)
        )

    async def verify(self, zone: str, machine: str) -> "CommandAccepted":
        """Have all parts of a machine read; one out of service comes back if they are sound."""
        from nodepool.contract.commands_metal import VerifyMachine

        return await self._send(VerifyMachine(zone=zone, machine=machine))
