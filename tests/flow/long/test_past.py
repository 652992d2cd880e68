"""Services at positions of the past, in more simulations."""

from pathlib import Path

import pytest

from flow.test_past import check_positions


@pytest.mark.parametrize("seed", range(1, 4))
def test_each_service_is_at_any_position_as_a_replay_of_the_whole_log_has_it(
    tmp_path: Path, seed: int
) -> None:
    check_positions(tmp_path, seed)
