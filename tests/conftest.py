"""Command line options of the whole test suite."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seeds",
        type=int,
        default=100,
        metavar="N",
        help="how many simulations of faults to run (default: 100)",
    )
    parser.addoption(
        "--seed",
        type=int,
        default=None,
        metavar="S",
        help="run the simulation of this seed only",
    )
