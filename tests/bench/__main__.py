"""Measure the control plane: `make bench`, or `make bench ARGS="--runs 5 --only pipeline nodes"`.

With --write, everything is measured unless --only names less, and the figures replace those of
tests/bench/README.md; those of `growth` and `machines` replace the tables of deploy/SCALING.md.
"""

import argparse
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from bench.machine import describe_machine
from bench.rows import ROWS
from bench.table import NOT_MEASURED, Line, format_line, format_run, write_part

PAGE = Path(__file__).with_name("README.md")
OF_ANOTHER_PAGE = frozenset({"growth", "machines"})
FAILED = NOT_MEASURED + "failed: "


def main() -> int:
    """Print each line once it is measured; return 1 if a measure failed."""
    options = _parse()
    machine = describe_machine()
    print(f"{machine}; {options.runs} runs, medians (lowest to highest)")
    found = {name: list(_measure(name, options)) for name in ROWS if name in options.only}
    if options.write and found.keys() - OF_ANOTHER_PAGE:
        names = [name for name in ROWS if name not in OF_ANOTHER_PAGE]
        lines = [line for name in names for line in found.get(name, [_leave_out(name)])]
        write_part(PAGE, "measured", format_run(machine, options.runs, lines))
    return int(any(line.result.startswith(FAILED) for lines in found.values() for line in lines))


def _leave_out(name: str) -> Line:
    return Line(f"{ROWS[name].what} (`{name}`)", NOT_MEASURED + "left out of this run")


def _measure(name: str, options: argparse.Namespace) -> Iterator[Line]:
    """Yield the lines of a row and print each; a row that fails leaves the others as they are."""
    try:
        for line in ROWS[name].measure(options):
            print(format_line(line), flush=True)
            yield line
    except Exception as error:  # A measure may fail in any way, and others have taken an hour.
        traceback.print_exc()
        cause = f"{type(error).__name__}: {error}".splitlines()[0]
        yield Line(f"{ROWS[name].what} (`{name}`)", FAILED + cause)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    long = ", ".join(name for name, row in ROWS.items() if row.is_long)
    parser.add_argument("--only", nargs="+", choices=ROWS, help=f"else all but {long}")
    parser.add_argument("--write", action="store_true", help="measure all, and write the pages")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--commands", type=int, default=5_000)
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--applies", type=int, default=300, help="one after another")
    parser.add_argument("--pools", type=int, default=1_000)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--subjects", type=int, default=40_000, help="messages of a log to read")
    parser.add_argument("--flood", type=int, default=20_000, help="commands of others")
    parser.add_argument("--messages", type=int, default=50_000, help="in the log at the restart")
    parser.add_argument("--preempted", type=int, default=750, help="Nodes preempted at once")
    parser.add_argument("--kube-nodes", nargs="+", type=int, default=[300])
    parser.add_argument("--large-nodes", type=int, default=1_000)
    parser.add_argument("--large-pods", type=int, default=10_000)
    parser.add_argument("--changes", type=int, default=200, help="of a spec in a large cluster")
    parser.add_argument("--ages", nargs="+", type=int, default=[100_000, 1_000_000])
    parser.add_argument(
        "--sizes", nargs="+", type=int, default=[1_000, 10_000, 100_000], help="Nodes to grow to"
    )
    parser.add_argument(
        "--machines", nargs="+", type=int, default=[500, 5_000], help="real ones, at rest"
    )
    options = parser.parse_args()
    if options.only is None:
        options.only = [name for name, row in ROWS.items() if options.write or not row.is_long]
    return options


if __name__ == "__main__":
    sys.exit(main())
