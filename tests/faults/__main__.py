"""`make faults`: some minutes of faults, then what was seen; exits with 1 where a promise broke."""

import argparse
import asyncio
import secrets
import sys

from faults.run import run

parser = argparse.ArgumentParser(prog="make faults")
parser.add_argument("--minutes", type=float, default=5.0, help="how long things go wrong")
parser.add_argument("--seed", type=int, default=None, help="what the faults are drawn from")
arguments = parser.parse_args()
seed = secrets.randbelow(1_000_000) if arguments.seed is None else arguments.seed
print(f"seed {seed}: repeat with make faults ARGS='--seed {seed}'", flush=True)
report = asyncio.run(run(seed, arguments.minutes * 60))
print("\n".join(report.lines()))
sys.exit(1 if report.violations else 0)
