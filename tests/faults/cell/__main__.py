"""Runs `make cell`: a cell on a disk of fixed size; exits with 1 if a promise was broken."""

import argparse
import asyncio
import secrets
import sys
import tempfile
from functools import partial
from pathlib import Path

from faults.cell.parts import MB, large, small
from faults.cell.run import run

parser = argparse.ArgumentParser(prog="make cell")
parser.add_argument("--messages", type=int, default=1_000_000, help="store at least so many")
parser.add_argument("--nodes", type=int, default=10_000, help="about how many Nodes there are")
parser.add_argument("--disk-mb", type=int, default=1_000, help="the size of the disk")
parser.add_argument("--small", action="store_true", help="60 Nodes on a disk of 64 MB")
parser.add_argument("--seed", type=int, default=None, help="the seed of the random kills")
arguments = parser.parse_args()
seed = secrets.randbelow(1_000_000) if arguments.seed is None else arguments.seed
print(f"seed {seed}: repeat with make cell ARGS='--seed {seed}'", flush=True)

if arguments.small:
    sizes = small(arguments.messages)
else:
    sizes = large(arguments.messages, arguments.nodes, arguments.disk_mb * MB)
with tempfile.TemporaryDirectory(prefix="nodepool-cell-") as folder:
    report = asyncio.run(run(seed, sizes, Path(folder), partial(print, flush=True)))
print("\n".join(report.lines()))
sys.exit(1 if report.faults else 0)
