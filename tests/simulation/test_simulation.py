"""Simulations of faults, one for each seed: no rule is broken, and in the end all adds up.

`--seeds=N` runs the seeds below N; `--seed=S` repeats one.
"""

import pytest

from support.simulation.driver import Simulation


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    seed = metafunc.config.getoption("--seed")
    seeds = range(metafunc.config.getoption("--seeds")) if seed is None else [seed]
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", seeds)


def test_no_rule_is_broken_under_faults(seed: int) -> None:
    simulation = Simulation(seed)

    try:
        simulation.run()
    except AssertionError as violation:
        command = f"python -m pytest tests/simulation/test_simulation.py --seed={seed}"
        tail = "\n".join(simulation.tail())
        pytest.fail(f"{violation}\n{tail}\nrepeat with: {command}", pytrace=False)


def test_the_same_seed_makes_the_same_log() -> None:
    first, second = Simulation(7), Simulation(7)

    first.run()
    second.run()

    assert first.log.entries == second.log.entries
