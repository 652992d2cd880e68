"""`nodepool run`: a program of this machine starts and ends as the Pod of a NodePool that it is."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from nodepool.local.server import NatsServer
from support.constants import CLUSTER, ORG
from support.live import LiveHarness

TRAIN = Path(__file__).parents[2] / "deploy" / "examples" / "train.py"
READY = "print('ready', flush=True)"
WAITS = f"import time; {READY}; time.sleep(99)"
DEAF = f"import signal, time; signal.signal(15, signal.SIG_IGN); {READY}; time.sleep(99)"
STAYS = (
    "import signal, time; signal.signal(15, lambda *_: print('asked', flush=True));"
    f" {READY}; time.sleep(99)"
)
PATIENCE_S = 60


class Program:
    """A `nodepool` command that was started; its output and its error output are read together."""

    def __init__(self, url: str, *arguments: str) -> None:
        others = {name: text for name, text in os.environ.items() if "NODEPOOL" not in name}
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "nodepool.cli", *arguments],
            env={
                **others,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "NODEPOOL_URL": url,
                "NODEPOOL_ORG": ORG,
                "NODEPOOL_CLUSTER": CLUSTER,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def until(self, text: str) -> str:
        """The next line that contains a text, once it is printed."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if text in line:
                return self.lines[-1]
        pytest.fail(f"it ended without {text!r}: {self.lines}")

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the `nodepool` process alone."""
        self.process.send_signal(number)

    @property
    def code(self) -> int:
        """Its exit code, once it has ended."""
        # `communicate` skips the text that is buffered after the last line that was read.
        assert self.process.stdout is not None
        with self.process.stdout as output:
            self.lines += output.read().splitlines()
        return self.process.wait(PATIENCE_S)


Run = Callable[..., Program]


@pytest.fixture
def run(live: LiveHarness, server: NatsServer) -> Iterator[Run]:
    """Starts programs in a data centre with ten machines; ends those that are left."""
    live.given_data_center()
    started: list[Program] = []

    def start(*arguments: str) -> Program:
        started.append(Program(server.url, "run", *arguments))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()
        if each.process.stdout is not None:
            each.process.stdout.close()


def python(code: str) -> tuple[str, ...]:
    """A Python program as the command of a `nodepool run`."""
    return ("--", sys.executable, "-c", code)


def phases(live: LiveHarness, pool: str = "batch") -> list[str]:
    """What became of the Pods of a NodePool, without their names, once all is idle."""
    live.run_until_idle()
    return [change.partition(" ")[2] for change in live.pod_changes(pool)]


def test_a_program_starts_when_its_pod_has_a_node_and_passes_its_exit_code_on(
    live: LiveHarness, run: Run
) -> None:
    live.apply("batch", 0)
    code = "import os, sys; print(os.environ['POD_NAME'], os.environ['NODEPOOL_NODE']); sys.exit(7)"

    program = run("--pool", "batch", "--name", "job", *python(code))
    waits = program.until("waits for a Node")
    live.scale("batch", 1)

    assert program.code == 7
    node = live.machine_name("n1")
    assert waits == (
        "Pod job waits for a Node: no Node of NodePool batch is open to it and has room"
    )
    # The lines come through two pipes, in either order.
    assert set(program.lines[1:]) == {f"Pod job runs on Node {node}", f"job {node}"}
    assert phases(live) == ["Pending", "Running n1", "Gone n1 Deleted"]


def test_a_program_is_asked_to_end_when_its_pod_is(live: LiveHarness, run: Run) -> None:
    live.apply("batch", 1)
    program = run("--pool", "batch", "--name", "job", *python(WAITS))
    program.until("ready")

    live.delete_pod("batch", "job")

    assert program.code == 128 + signal.SIGTERM
    assert "leaves Node" in program.lines[-1]
    assert phases(live)[-2:] == ["Terminating n1 Deleted", "Gone n1 Deleted"]


def test_a_program_that_does_not_listen_is_killed_after_its_grace_period(
    live: LiveHarness, run: Run
) -> None:
    live.apply("batch", 1)
    program = run("--pool", "batch", "--name", "job", "--grace", "1", *python(DEAF))
    program.until("ready")

    live.delete_pod("batch", "job")

    assert program.code == 128 + signal.SIGKILL


def test_an_interrupt_asks_the_program_to_end_and_a_second_one_kills_it(
    live: LiveHarness, run: Run
) -> None:
    live.apply("batch", 2)
    first = run("--pool", "batch", *python(WAITS))
    second = run("--pool", "batch", "--grace", "3600", *python(STAYS))
    for program in (first, second):
        program.until("ready")

    first.send(signal.SIGINT)
    second.send(signal.SIGINT)
    # Two signals at once may arrive as one.
    second.until("asked")
    second.send(signal.SIGINT)
    codes = first.code, second.code

    assert codes == (128 + signal.SIGTERM, 128 + signal.SIGKILL)
    assert phases(live).count("Gone n1 Deleted") == 2


def test_an_interrupt_while_it_waits_leaves_no_pod_behind(live: LiveHarness, run: Run) -> None:
    live.apply("batch", 0)
    program = run("--pool", "batch", *python(WAITS))
    program.until("waits for a Node")

    program.send(signal.SIGTERM)

    assert program.code == 130
    assert phases(live) == ["Pending", "Gone Deleted"]


def test_a_program_starts_again_on_the_next_node_until_it_is_done(
    live: LiveHarness, run: Run, tmp_path: Path
) -> None:
    live.apply("batch", 1)
    once = (
        f"import pathlib, time; p = pathlib.Path({str(tmp_path / 'done')!r});"
        f" first = not p.exists(); p.touch(); {READY}; time.sleep(99 if first else 0)"
    )
    program = run("--pool", "batch", "--name", "job", "--restart", *python(once))
    program.until("ready")

    live.delete_pod("batch", "job")

    assert program.code == 0
    assert [line for line in program.lines if line == "ready"] == ["ready", "ready"]
    assert phases(live).count("Running n1") == 2


def test_two_preemptions_lose_no_step_of_a_training_run(
    live: LiveHarness, run: Run, server: NatsServer, tmp_path: Path
) -> None:
    live.apply("batch", 1, computeClass="spot")
    file = str(tmp_path / "train.json")
    script = (sys.executable, str(TRAIN), "--step-seconds", "0.05", "--checkpoint", file)
    endless = ("--steps", "99999", "--every", "99999")
    program = run("--pool", "batch", "--restart", "--", *script, *endless)

    nodes = [program.until("runs on Node").rpartition(" ")[2]]
    for _ in range(2):
        program.until("step ")
        program.until("step ")
        live.preempt("batch", *live.nodes("batch"))
        program.until("is being preempted")
        acknowledged = Program(server.url, "ack", nodes[-1])
        assert acknowledged.code == 0
        assert acknowledged.lines == [f"node/{nodes[-1]} acknowledged"]
        program.until("asked to end after")
        nodes.append(program.until("runs on Node").rpartition(" ")[2])

    program.until("step ")
    program.send(signal.SIGINT)
    assert program.code == 128 + signal.SIGTERM
    steps = [line for line in program.lines if line.startswith("step ")]
    assert steps == [f"step {number}" for number in range(1, len(steps) + 1)]
    assert len(set(nodes)) == 3
    assert [change for change in phases(live) if "Terminating" in change][:2] == [
        "Terminating n1 Evicted",
        "Terminating n2 Evicted",
    ]
    last = len(steps) + 1
    rest = subprocess.check_output([*script, "--steps", str(last)], text=True, timeout=PATIENCE_S)
    assert rest.splitlines()[1:] == [f"step {last}", "done"]


def test_a_program_that_ends_before_its_time_gives_its_node_back_at_once(
    live: LiveHarness, run: Run, tmp_path: Path
) -> None:
    live.apply("batch", 1, computeClass="spot")
    program = run("--pool", "batch", *python(until_asked(tmp_path)))
    program.until("ready")
    live.preempt("batch", "n1")
    program.until("is being preempted")

    (tmp_path / "end").touch()

    assert program.code == 9
    assert program.lines[-1] == f"Node {live.machine_name('n1')} is given back"
    assert "DeletedForPreemption n1" in all_events(live)


def test_a_program_that_is_not_alone_on_its_node_leaves_it_to_the_others(
    live: LiveHarness, run: Run, tmp_path: Path
) -> None:
    live.apply("batch", 1, computeClass="spot")
    program = run("--pool", "batch", *python(until_asked(tmp_path)))
    program.until("ready")
    live.run_pod("n1", "other", graceS=600)
    live.preempt("batch", "n1")
    program.until("is being preempted")

    (tmp_path / "end").touch()

    assert program.code == 9
    assert all_events(live)[-1] == "PreemptionPending n1"


def until_asked(folder: Path) -> str:
    """A Python program that ends with 9 once there is a file `end` in a folder."""
    end = str(folder / "end")
    return (
        f"import os, sys, time\n{READY}\nwhile not os.path.exists({end!r}): time.sleep(0.01)\n"
        "sys.exit(9)"
    )


def all_events(live: LiveHarness) -> list[str]:
    """What users see of the NodePool `batch`, once all is idle."""
    live.run_until_idle()
    return live.events("batch")


def test_a_program_goes_on_without_a_server_and_hears_later_what_it_missed(
    live: LiveHarness, run: Run, server: NatsServer
) -> None:
    live.apply("batch", 1)
    listening = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(4));"
        f" {READY}; time.sleep(99)"
    )
    program = run("--pool", "batch", "--name", "job", *python(listening))
    program.until("ready")

    server.stop()
    gone = program.until("the server at")
    server.start()
    back = program.until("the server at")
    live.run_until_idle()
    live.delete_pod("batch", "job")

    assert gone.endswith("is gone; the program goes on")
    assert back.endswith("is back")
    assert program.code == 4
    assert phases(live)[-1] == "Gone n1 Deleted"


def test_a_program_starts_again_although_its_pod_could_not_be_deleted_at_first(
    live: LiveHarness, run: Run, server: NatsServer, tmp_path: Path
) -> None:
    # given a program that ends after its Pod was told to, while there is no server
    live.apply("batch", 1)
    done = tmp_path / "done"
    slow = (
        "import pathlib, signal, sys, time;"
        f"signal.signal(15, lambda *_: print('asked', flush=True)); {READY};"
        f"done = pathlib.Path({str(done)!r})\n"
        "if done.exists(): sys.exit(0)\n"
        "while not done.exists(): time.sleep(0.05)\n"
        "sys.exit(7)"
    )
    limits = ("--pool", "batch", "--name", "job", "--restart", "--request-timeout", "5s")
    program = run(*limits, "--grace", "3600", *python(slow))
    program.until("ready")
    live.delete_pod("batch", "job")
    program.until("asked")
    server.stop()
    done.touch()
    program.until("trying again")

    # when the server is back
    server.start()

    # then it runs once more, on a Pod of its own
    program.until("ready")
    assert program.code == 0
    assert phases(live) == [
        "Pending",
        "Running n1",
        "Terminating n1 Deleted",
        "Gone n1 Deleted",
        "Pending",
        "Running n1",
        "Gone n1 Deleted",
    ]


@pytest.mark.parametrize("code", [WAITS, DEAF], ids=["listens", "does not listen"])
def test_a_program_ends_although_its_command_was_killed(
    live: LiveHarness, run: Run, code: str
) -> None:
    live.apply("batch", 1)
    arguments = ("--pool", "batch", "--name", "job", "--grace", "1", *python(code))
    program = run(*arguments)
    program.until("ready")

    program.send(signal.SIGKILL)

    assert program.code == -signal.SIGKILL  # Once nothing writes to its output any more.
    assert phases(live)[-1] == "Running n1"
    again = run(*arguments)
    assert again.code == 1
    assert again.lines == [
        "error: pod.name: Pod job exists already in NodePool batch (Conflict);"
        " if its program was killed, delete it with 'nodepool fleet delete-pod batch job'"
    ]


def test_a_program_that_fails_by_itself_is_not_started_again(live: LiveHarness, run: Run) -> None:
    live.apply("batch", 1)

    program = run("--pool", "batch", "--restart", *python("import sys; sys.exit(5)"))

    assert program.code == 5


WRONG: Mapping[tuple[str, ...], tuple[int, str]] = {
    ("--pool", "none"): (1, "NodePool none does not exist"),
    ("--pool", "batch", "--gpus", "9"): (1, "pod.gpus"),
    ("--pool", "batch", "--name", "A_b"): (1, "pod.name"),
    ("--pool", "batch", "--grace", "31536000"): (2, "--grace"),
    ("--pool", "batch", "--gpus", "-1"): (2, "--gpus"),
    (): (2, "--pool"),
}


def test_what_cannot_be_is_refused(live: LiveHarness, run: Run) -> None:
    live.apply("batch", 1)
    for arguments, (code, error) in WRONG.items():
        program = run(*arguments, *python(WAITS))

        assert (program.code, len(program.lines)) == (code, 1)
        assert error in program.lines[0]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("ack", "gffffff"), 'error: node "gffffff": not found in acme/prod'),
        (("ack", "node", "gffffff"), 'error: node "gffffff": not found in acme/prod'),
        (("ack", "nodepool/batch"), "error: TYPE: 'nodepool' is not supported here"),
    ],
)
def test_only_a_node_that_exists_is_given_back(
    live: LiveHarness, server: NatsServer, words: tuple[str, ...], error: str
) -> None:
    live.given_data_center()

    program = Program(server.url, *words)

    assert program.code in (1, 2)
    assert program.lines[0].startswith(error)


def test_a_node_that_is_not_being_preempted_is_not_given_back(
    live: LiveHarness, server: NatsServer
) -> None:
    live.given_data_center()
    live.apply("batch", 1, computeClass="spot")
    node = live.machine_name("n1")
    live.node("n1")

    program = Program(server.url, "ack", node)

    assert program.code == 1
    assert program.lines == [
        f'error: node "{node}": node: {node} is no Node of NodePool batch that is being preempted'
        " (NotFound)"
    ]


@pytest.mark.parametrize(
    ("command", "code", "error"),
    [
        (("no-such-program",), 127, "error: no-such-program: command not found"),
        ((str(Path(__file__).parent),), 126, f"error: {Path(__file__).parent}: is a directory"),
        ((), 2, "error: COMMAND: is required; write it after -- (see nodepool run --help)"),
    ],
)
def test_what_cannot_be_run_is_refused_before_there_is_a_pod(
    live: LiveHarness, run: Run, command: tuple[str, ...], code: int, error: str
) -> None:
    live.apply("batch", 1)

    program = run("--pool", "batch", "--", *command)

    assert (program.code, program.lines) == (code, [error])
    assert phases(live) == []
