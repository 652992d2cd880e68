"""`make faults`: some minutes of faults, then what was seen; exits with 1 where a promise broke."""

import argparse
import asyncio
import secrets
import signal
import sys

from faults.report import Report
from faults.run import run

parser = argparse.ArgumentParser(prog="make faults")
parser.add_argument("--minutes", type=float, default=5.0, help="how long things go wrong")
parser.add_argument("--seed", type=int, default=None, help="what the faults are drawn from")
arguments = parser.parse_args()
seed = secrets.randbelow(1_000_000) if arguments.seed is None else arguments.seed
print(f"seed {seed}: repeat with make faults ARGS='--seed {seed}'", flush=True)


async def _run() -> Report:
    """One run, which ends what it has started when it is told to stop."""
    task = asyncio.create_task(run(seed, arguments.minutes * 60))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


report = asyncio.run(_run())
print("\n".join(report.lines()))
sys.exit(1 if report.violations else 0)
