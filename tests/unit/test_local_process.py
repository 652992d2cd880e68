"""A program in a process group of its own: asked to end, killed after its grace period."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from nodepool.local.process import LocalProcess, NotStarted, executable

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
PATIENCE_S = 30.0


def ran(body: Callable[[LocalProcess], Awaitable[None]], code: str, log: Path) -> int:
    """The exit code of a Python program, with which `body` deals once it has said `ready`."""
    program = f"{code}\nopen({str(log)!r}, 'w').close()\ntime.sleep({PATIENCE_S})"

    async def run() -> int:
        process = await LocalProcess.start([sys.executable, "-c", program], os.environ)
        async with asyncio.timeout(PATIENCE_S):
            while not log.exists():
                await asyncio.sleep(0.01)
            await body(process)
            return await process.wait()

    return asyncio.run(run())


async def nothing(_: LocalProcess) -> None:
    """Leaves the program alone."""


def test_a_program_that_ends_by_itself_gives_its_exit_code(tmp_path: Path) -> None:
    code = ran(nothing, "import sys, time; time.sleep = lambda _: sys.exit(7)", tmp_path / "log")

    assert code == 7


def test_a_program_that_is_asked_to_end_ends_at_once(tmp_path: Path) -> None:
    async def body(process: LocalProcess) -> None:
        process.terminate(PATIENCE_S)

    assert ran(body, "import time", tmp_path / "log") == 128 + 15


def test_a_program_that_does_not_listen_is_killed_after_its_grace_period(tmp_path: Path) -> None:
    async def body(process: LocalProcess) -> None:
        process.terminate(0.2)

    assert ran(body, DEAF, tmp_path / "log") == 128 + 9


def test_a_second_request_does_not_give_more_time_but_may_give_less(tmp_path: Path) -> None:
    async def body(process: LocalProcess) -> None:
        process.terminate(PATIENCE_S)
        process.terminate(0.1)
        process.terminate(PATIENCE_S)

    assert ran(body, DEAF, tmp_path / "log") == 128 + 9


def test_what_a_program_has_started_ends_with_it(tmp_path: Path) -> None:
    child = tmp_path / "child"
    code = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep({PATIENCE_S})'])"
        f"\nopen({str(child)!r}, 'w').write(str(child.pid))\ntime.sleep = lambda _: sys.exit(3)"
    )

    assert ran(nothing, code, tmp_path / "log") == 3
    asyncio.run(_gone(int(child.read_text())))


async def _gone(pid: int) -> None:
    async with asyncio.timeout(PATIENCE_S / 2):
        while not _is_gone(pid):
            await asyncio.sleep(0.01)


def _is_gone(pid: int) -> bool:
    """Whether a process is gone, or only waits for what started it to take note."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


@pytest.mark.parametrize(
    ("name", "code", "why"),
    [
        ("no-such-program", 127, "no-such-program: command not found"),
        ("./no-such-file", 127, "./no-such-file: command not found"),
        ("{}/notes", 126, "{}/notes: is not executable"),
        ("{}", 126, "{}: is a directory"),
    ],
)
def test_what_cannot_be_run_gives_the_exit_code_of_a_shell(
    name: str, code: int, why: str, tmp_path: Path
) -> None:
    (tmp_path / "notes").write_text("no program")

    with pytest.raises(NotStarted) as error:
        executable(name.format(tmp_path), os.environ)

    assert (error.value.code, str(error.value)) == (code, why.format(tmp_path))


def test_a_file_without_an_interpreter_is_not_run(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)

    with pytest.raises(NotStarted, match="program: No such file or directory"):
        asyncio.run(LocalProcess.start([str(program)], os.environ))
