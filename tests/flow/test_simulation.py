"""Storms of faults, one for each seed: whatever happens in between, what is left adds up.

`--seeds=N` lives through more or fewer of them; `--seed=S` repeats one.
"""

import pytest

from support.simulation import Simulation


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    one = metafunc.config.getoption("--seed")
    seeds = range(metafunc.config.getoption("--seeds")) if one is None else [one]
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", seeds)


def test_nothing_is_broken_by_a_storm(seed: int) -> None:
    simulation = Simulation(seed)

    try:
        simulation.run()
    except AssertionError as broken:
        again = f"python -m pytest tests/flow/test_storm.py --seed={seed}"
        tail = "\n".join(simulation.last_words())
        pytest.fail(f"{broken}\n{tail}\nrepeat with: {again}", pytrace=False)


def test_the_same_seed_makes_the_same_storm() -> None:
    first, second = Simulation(7), Simulation(7)

    first.run()
    second.run()

    assert first.log.entries == second.log.entries
