"""Mutants of every module that decides."""

from mutation.equivalents import read_equivalents
from mutation.mutants import sample
from mutation.stories import FOLDERS
from mutation.test_mutants import ROOT


def test_a_seed_draws_the_same_mutants_again() -> None:
    first, again, other = (sample(ROOT, ["services/quota"], 5, seed) for seed in (1, 1, 2))

    assert first == again != other
    assert first[:2] == sample(ROOT, ["services/quota"], 2, 1)
    assert [len({*first}), {each.folder for each in first}] == [5, {"services/quota"}]


def test_every_equivalent_mutant_is_still_one() -> None:
    known = read_equivalents()
    paths = sorted({each.path for each in known})
    mutants = [each for path in paths for each in sample(ROOT, FOLDERS, 10_000, 1, path)]

    assert [one for one in known if not any(one.matches(each) for each in mutants)] == []
