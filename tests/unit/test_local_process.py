"""A program in a process group of its own: asked to end, killed after its grace period."""

import asyncio
import os
import select
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nodepool.local.process import LocalProcess, NotStarted, executable

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
PATIENCE_S = 30.0


def ran(body: Callable[[LocalProcess], None], code: str, folder: Path) -> int:
    """The exit code of a Python program, with which `body` deals once it runs."""
    ready = folder / "ready"
    os.mkfifo(ready)
    program = f"{code}\nopen({str(ready)!r}, 'w').close()\ntime.sleep({PATIENCE_S})"

    async def run() -> int:
        process = await LocalProcess.start([sys.executable, "-c", program], os.environ)
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.to_thread(ready.read_text)
            body(process)
            return await process.wait()

    return asyncio.run(run())


def nothing(_: LocalProcess) -> None:
    """Leaves the program alone."""


def test_a_program_that_ends_by_itself_gives_its_exit_code(tmp_path: Path) -> None:
    code = ran(nothing, "import sys, time; time.sleep = lambda _: sys.exit(7)", tmp_path)

    assert code == 7


def test_a_program_that_is_asked_to_end_ends_at_once(tmp_path: Path) -> None:
    def body(process: LocalProcess) -> None:
        process.terminate(PATIENCE_S)

    assert ran(body, "import time", tmp_path) == 128 + 15


def test_a_program_that_does_not_listen_is_killed_after_its_grace_period(tmp_path: Path) -> None:
    def body(process: LocalProcess) -> None:
        process.terminate(0.2)

    assert ran(body, DEAF, tmp_path) == 128 + 9


def test_a_second_request_does_not_give_more_time_but_may_give_less(tmp_path: Path) -> None:
    def body(process: LocalProcess) -> None:
        process.terminate(PATIENCE_S)
        process.terminate(0.1)
        process.terminate(PATIENCE_S)

    assert ran(body, DEAF, tmp_path) == 128 + 9


def test_what_a_program_has_started_ends_with_it(tmp_path: Path) -> None:
    # given a child that holds the other end of a pipe for as long as it lives
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    pipe = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
    child = f"import time; held = open({str(alive)!r}, 'w'); print(1, flush=True); time.sleep(99)"
    code = (
        "import subprocess, sys, time\n"
        f"child = [sys.executable, '-c', {child!r}]\n"
        "subprocess.Popen(child, stdout=subprocess.PIPE).stdout.readline()\n"
        "time.sleep = lambda _: sys.exit(3)"
    )

    ended = ran(nothing, code, tmp_path)
    readable, _, _ = select.select([pipe], [], [], PATIENCE_S)

    assert (ended, readable) == (3, [pipe])
    os.close(pipe)


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


async def test_a_file_without_an_interpreter_is_not_run(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)

    with pytest.raises(NotStarted, match="program: No such file or directory"):
        await LocalProcess.start([str(program)], os.environ)
