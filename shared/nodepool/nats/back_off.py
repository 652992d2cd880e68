"""How long to wait before something that has failed is tried again; pure."""


def pause_s(failures: int, least_s: float, most_s: float, draw: float) -> float:
    """The seconds to wait after so many failures in a row.

    It doubles from `least_s` to `most_s`. `draw`, from 0 to 1, takes up to half of it away, so
    that many programs that failed together do not try again together.
    """
    doubled = least_s * 2 ** min(failures - 1, 30) if failures > 0 else 0.0
    return min(doubled, most_s) * (1 - draw / 2)
