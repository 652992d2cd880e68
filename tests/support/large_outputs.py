"""The print shop of `support.sample_service`, some of whose outputs are as large as can be."""

from collections.abc import Generator
from dataclasses import replace

from nodepool.contract.log import MESSAGE_BYTES_MAX
from nodepool.contract.messages import pool_fields
from nodepool.contract.outcomes import CommandOutcome, build_acceptance
from nodepool.engine.bounds import DATA_BYTES_MAX
from nodepool.service import Context, Reconciler
from support import sample_service as printer
from support.sample_service import (
    JOB,
    SERVICE,
    Hears,
    PagesAdded,
    PaperJammed,
    PrintNow,
    Says,
    State,
)

LARGEST = 6
"""A command about so many pages leads to an output that is as large as it may be."""
TOO_LARGE = 7
"""What is about so many pages leads to an output that is too large."""


def jammed(size: int) -> PaperJammed:
    """A report whose data has so many bytes."""
    empty = len(PaperJammed(**pool_fields(JOB), cause="").model_dump_json())
    return PaperJammed(**pool_fields(JOB), cause="x" * (size - empty))


def decide(
    state: State, message: Hears, context: Context
) -> Generator[Says | CommandOutcome, State, None]:
    """As the print shop decides, but for commands and events about seven pages."""
    match message:
        case PrintNow(pages=pages) if pages == TOO_LARGE:
            yield build_acceptance(message, "done")
            yield jammed(DATA_BYTES_MAX + 1)
        case PrintNow(pages=pages) if pages == LARGEST:
            yield build_acceptance(message, "done")
            yield jammed(DATA_BYTES_MAX)
        case PagesAdded(pages=pages) if pages == TOO_LARGE:
            yield jammed(2 * MESSAGE_BYTES_MAX)
        case _:
            yield from printer.decide(state, message, context)


def reconcile_too_large(state: State, key: str, context: Context) -> Generator[Says, State, None]:
    """As the print shop reconciles, but for jobs of seven pages."""
    job = state.jobs.get(JOB)
    if key == JOB and job is not None and job.pages == TOO_LARGE:
        yield jammed(2 * MESSAGE_BYTES_MAX)
    else:
        yield from printer.reconcile(state, JOB, context)


TALKATIVE = replace(
    SERVICE, decide=decide, reconciler=Reconciler(reconcile_too_large), on_failure=lambda *_: ()
)
