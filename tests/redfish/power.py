"""Power that goes without a request."""

import asyncio

import aiohttp

from redfish.front import Front

RESET = "/Actions/ComputerSystem.Reset"


async def switch_off(front: Front) -> None:
    """Take the power away from a machine, which no controller asks for."""
    url = f"{front.machine.url}{front.path}"
    async with aiohttp.ClientSession() as session:
        await session.post(f"{url}{RESET}", json={"ResetType": "ForceOff"})
        while True:
            async with session.get(url) as answer:
                if (await answer.json())["PowerState"] == "Off":
                    return
            await asyncio.sleep(0.2)
