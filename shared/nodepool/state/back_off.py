"""How long to wait before a failed operation is tried again; pure."""


def pause_s(failures: int, least_s: float, most_s: float, draw: float) -> float:
    """Return the seconds to wait after this number of failures in a row.

    The pause doubles from `least_s` to `most_s`. `draw`, from 0 to 1, shortens it by up to half, so
    that programs that failed together do not all retry at the same time.
    """
    doubled = least_s * 2 ** min(failures - 1, 30) if failures > 0 else 0.0
    return min(doubled, most_s) * (1 - draw / 2)
