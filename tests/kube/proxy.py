"""A TCP proxy on the loopback whose connections can be cut, or stand still."""

import asyncio

from support.loopback import CHUNK, ThreadedServer, leading_to


class Proxy(ThreadedServer):
    """Passes on what is sent to its port to another port of the loopback, until it is told else."""

    def __init__(self, target: int) -> None:
        super().__init__(self._lead)
        self._target = target
        self._passes = asyncio.Event()
        self._passes.set()
        self._refuses = False
        self._writers: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """Ends each connection, and each that is made from now on."""
        self._wait(self._set(refuses=True, is_open=True))

    def freeze(self) -> None:
        """From now on nothing comes through, and nothing is closed: packets are lost."""
        self._wait(self._set(refuses=False, is_open=False))

    def mend(self) -> None:
        """Everything comes through again, also what has waited."""
        self._wait(self._set(refuses=False, is_open=True))

    async def _set(self, *, refuses: bool, is_open: bool) -> None:
        self._refuses = refuses
        if is_open:
            self._passes.set()
        else:
            self._passes.clear()
        for writer in self._writers if refuses else ():
            writer.transport.abort()

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            return
        await self._passes.wait()
        async with leading_to(self._target) as (there, back):
            ends = {writer, back}
            self._writers |= ends
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._pass(reader, back))
                    both.create_task(self._pass(there, writer))
            except* OSError:
                pass  # Of one side or the other; both are closed below.
            finally:
                self._writers -= ends
                # Nobody waits for what was on its way.
                for each in ends:
                    each.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(CHUNK):
            await self._passes.wait()
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()
