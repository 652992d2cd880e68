"""Pages of metrics in Prometheus' text format or as OpenMetrics, as the request asks for.

The text format is described at https://prometheus.io/docs/instrumenting/exposition_formats/, and
OpenMetrics at https://github.com/prometheus/OpenMetrics. The state of a control plane may have
200,000 series. prometheus_client writes 30,000 series per second and holds the interpreter's lock
meanwhile. This module writes ten times as many, and regularly lets other threads run.
"""

import re
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final, NamedTuple

from nodepool.contract.metrics import Histogram, Metric, Sample

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
TURN: Final = 200
"""After this many series, which take about half a millisecond, other threads get a turn."""
PAUSE_S: Final = 0.0005
"""How long the turn of the other threads is, at least."""
_CHUNK: Final = 1_000
"""How many lines are joined into one bytes object, which takes half the memory of strings."""
_SPECIAL: Final = re.compile(r'["\\\n]')
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Wanted(NamedTuple):
    """The format that a client accepts.

    openmetrics: whether to send OpenMetrics instead of Prometheus' text format.
    gzip: whether to compress the page.
    """

    openmetrics: bool = False
    gzip: bool = False

    @property
    def content_type(self) -> str:
        """The value of the Content-Type header."""
        return OPENMETRICS if self.openmetrics else TEXT


def choose_format(accept: str, accept_encoding: str) -> Wanted:
    """Return the format that the headers of a request ask for; the text format by default."""
    openmetrics = text = 0.0
    for kind, version, quality in _choices(accept):
        if kind == "application/openmetrics-text" and version in ("", "1.0.0"):
            openmetrics = max(openmetrics, quality)
        elif kind == "text/plain":
            text = max(text, quality)
    gzip = any(kind == "gzip" and quality > 0 for kind, _, quality in _choices(accept_encoding))
    return Wanted(openmetrics > 0 and openmetrics >= text, gzip)


def _choices(header: str) -> Iterator[tuple[str, str, float]]:
    """Yield the name, version and quality of each choice; an invalid quality counts as 0."""
    for choice in header.split(","):
        kind, *parameters = (part.strip() for part in choice.split(";"))
        values = dict(part.split("=", 1) for part in parameters if "=" in part)
        try:
            quality = float(values.get("q", "1"))
        except ValueError:
            quality = 0.0
        yield kind.lower(), values.get("version", ""), quality


def format_families(
    sources: Iterable[tuple[Mapping[str, str], Iterable[Sample]]], *, openmetrics: bool
) -> list[bytes]:
    """Return the families of all samples as pieces of a page; each family is in one place.

    sources: samples with the labels that their series share, which come before a series' own.
    """
    families: dict[str, _Family] = {}
    series = ((shared, sample) for shared, samples in sources for sample in samples)
    for number, (shared, sample) in enumerate(series, 1):
        metric = sample.metric
        family = families.get(metric.name)
        if family is None:
            family = families[metric.name] = _Family(metric, openmetrics=openmetrics)
        family.add(sample, shared)
        if not number % TURN:
            time.sleep(PAUSE_S)
    return [piece for family in families.values() for piece in family.pieces()]


def compress_pieces(pieces: Iterable[bytes]) -> list[bytes]:
    """Return the pieces as one gzip file; zlib lets other threads run meanwhile."""
    # 31 selects zlib's default window size with a gzip header and trailer.
    gzip = zlib.compressobj(1, zlib.DEFLATED, 31)
    return [*(gzip.compress(piece) for piece in pieces), gzip.flush()]


class _Family:
    """The lines of one metric."""

    def __init__(self, metric: Metric, *, openmetrics: bool) -> None:
        name = metric.name.removesuffix("_total") if openmetrics else metric.name
        self._metric = metric
        self._shared: Mapping[str, str] | None = None
        self._labels = ""
        self._lines = [f"# HELP {name} {metric.help}\n# TYPE {name} {metric.kind}\n"]
        self._pieces: list[bytes] = []

    def _share(self, shared: Mapping[str, str]) -> None:
        """Begin the series that share these labels."""
        fixed = (
            f'{name}="{value.translate(_ESCAPES).replace("%", "%%")}"'
            for name, value in shared.items()
        )
        self._shared = shared
        self._labels = ",".join((*fixed, *(f'{name}="%s"' for name in self._metric.labels)))
        self._template = f"{self._metric.name}{{{self._labels}}} "

    def add(self, sample: Sample, shared: Mapping[str, str]) -> None:
        """Write the line of a sample, or the lines of a histogram.

        Raises TypeError for a kind of value that the metric does not have.
        """
        if shared is not self._shared:
            self._share(shared)
        labels, value = sample.labels, sample.value
        if _SPECIAL.search("".join(labels)):
            labels = tuple(label.translate(_ESCAPES) for label in labels)
        if isinstance(value, Histogram) != (self._metric.kind == "histogram"):
            raise TypeError(f"{self._metric.name} is a {self._metric.kind}")
        if isinstance(value, Histogram):
            self._lines.extend(self._histogram(self._labels % labels, value))
        else:
            self._lines.append(f"{self._template % labels}{_number(value)}\n")
        if len(self._lines) >= _CHUNK:
            self._flush()

    def _histogram(self, labels: str, value: Histogram) -> Iterator[str]:
        name = self._metric.name
        bounds = (*(repr(float(bound)) for bound in self._metric.buckets), "+Inf")
        counts = tuple(accumulate(value.counts))
        for bound, count in zip(bounds, counts, strict=True):
            yield f'{name}_bucket{{{labels},le="{bound}"}} {count}\n'
        yield f"{name}_count{{{labels}}} {counts[-1]}\n"
        yield f"{name}_sum{{{labels}}} {_number(value.sum)}\n"

    def _flush(self) -> None:
        self._pieces.append("".join(self._lines).encode())
        self._lines = []

    def pieces(self) -> list[bytes]:
        """Return all lines in pieces."""
        self._flush()
        return self._pieces


def _number(value: float) -> str:
    # Both formats accept Python's text of a float, except for these values.
    text = repr(float(value))
    return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(text, text)
