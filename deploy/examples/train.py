"""A training run that loses no step when it is interrupted; it needs nothing but Python.

It counts steps. Every so many steps, and when it is asked to end with SIGTERM, it writes a
checkpoint, from which the next run goes on. It ends with 0 once all steps are done, and with 143
where it was asked to end before that. Run it on Nodes that may be taken back at any moment:

    nodepool run --pool batch --restart -- python deploy/examples/train.py
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

TERMINATED = 128 + signal.SIGTERM
"""The exit code of a run that was asked to end, by the convention of shells."""


class Checkpoint:
    """How many steps are done, in a file that is there whole or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> int:
        """How many steps are done; ends the program where the file is no checkpoint."""
        try:
            step = json.loads(self.path.read_text(encoding="utf-8"))["step"]
        except FileNotFoundError:
            return 0
        except (ValueError, LookupError, TypeError):
            step = None
        if not isinstance(step, int):
            sys.exit(f"{self.path} is no checkpoint: remove it, or name another with --checkpoint")
        return step

    def save(self, step: int) -> None:
        """Replace the file at once, so that a crash leaves the old one or the new one."""
        new = self.path.with_name(f"{self.path.name}.new")
        with new.open("w", encoding="utf-8") as file:
            json.dump({"step": step}, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)


def say(text: str) -> None:
    """Print a line at once, also into a pipe."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def positive(text: str) -> int:
    """Return a number of steps."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def main() -> int:
    """Do the steps that are left; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=positive, default=600, help="how many steps in all")
    parser.add_argument("--every", type=positive, default=50, help="steps between checkpoints")
    parser.add_argument("--step-seconds", type=float, default=0.5, help="how long a step takes")
    parser.add_argument("--checkpoint", type=Path, default=Path("train.json"), help="the file")
    options = parser.parse_args()

    asked_to_end = []
    signal.signal(signal.SIGTERM, lambda number, _: asked_to_end.append(number))

    checkpoint = Checkpoint(options.checkpoint)
    first = step = checkpoint.load()
    where = os.environ.get("NODEPOOL_NODE", "this machine")
    say(f"on {where}: {step} of {options.steps} steps are done")
    while step < options.steps and not asked_to_end:
        time.sleep(max(0.0, options.step_seconds))  # Here the work would be done.
        step += 1
        say(f"step {step}")
        if step % options.every == 0:
            checkpoint.save(step)
    checkpoint.save(step)
    if step < options.steps:
        say(f"asked to end after {step - first} steps; {step} are saved")
        return TERMINATED
    say("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
