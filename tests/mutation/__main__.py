"""`make mutation`: changes decisions one at a time; exits with 1 if too many go unnoticed."""

import argparse
import signal
import sys
from pathlib import Path

from mutation.equivalents import read_equivalents
from mutation.mutants import Mutant, sample
from mutation.report import Report
from mutation.stories import FOLDERS, TESTS, tests_of
from mutation.workshop import Unusable, Workshop, open_workshop

ROOT = Path(__file__).parents[2]
SHARE_MIN = 0.85
"""The least share of mutants that tests have to notice."""


def run(workshop: Workshop, mutants: list[Mutant], report: Report) -> None:
    """Try out each mutant; say of each what became of it."""
    print("running the tests without a change", flush=True)
    trace = workshop.trace(TESTS, FOLDERS)
    for number, mutant in enumerate(mutants, 1):
        fate = workshop.try_out(mutant, trace.stages(mutant, tests_of(mutant.folder)))
        report.add(mutant, fate)
        print(f"{number}/{len(mutants)} {fate.value}: {mutant}", flush=True)


def main() -> int:
    """Run a sample; return the exit code."""
    parser = argparse.ArgumentParser(prog="make mutation", allow_abbrev=False)
    parser.add_argument("--sample", type=int, default=200, help="how many mutants are drawn")
    parser.add_argument("--seed", type=int, default=1, help="what they are drawn from")
    parser.add_argument("--only", default="", help="packages or modules whose path holds this text")
    arguments = parser.parse_args()
    drawn = sample(ROOT, FOLDERS, arguments.sample, arguments.seed, arguments.only)
    known = read_equivalents()
    mutants = [each for each in drawn if not any(one.matches(each) for one in known)]
    report = Report(equivalent=len(drawn) - len(mutants))
    try:
        with open_workshop(ROOT) as workshop:
            run(workshop, mutants, report)
        is_complete = True
    except (KeyboardInterrupt, Unusable) as end:
        print(f"stopped: {str(end) or 'interrupted'}", flush=True)
        is_complete = False
    print("\n".join(report.lines()))
    return 0 if is_complete and report.share >= SHARE_MIN else 1


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    sys.exit(main())
