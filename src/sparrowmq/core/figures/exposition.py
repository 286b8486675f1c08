"""Figures by name and labels, collected step by step, and their text for Prometheus. Pure.

The text is in Prometheus' own format, or in OpenMetrics' for scrapers that prefer it.

The number of series of a metric is bounded. Those beyond the bound are counted in
`sparrow_metrics_series_left_out` for each metric. So the text of a broker with many topics has a bounded
size, and shows when its sums are incomplete.

The library `prometheus_client` writes a whole registry at once and takes several microseconds for each
sample. With thousands of topics, this would block the loop for a large part of a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf, isnan
from typing import Final, NamedTuple, Protocol, TypeAlias

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text"
OPENMETRICS_TYPE: Final = f"{OPENMETRICS}; version=1.0.0; charset=utf-8"
COUNTER_END: Final = "_total"
CHUNK_LINES: Final = 250
"""Lines that are joined in one step."""
LEFT_OUT: Final = "sparrow_metrics_series_left_out"
_ESCAPES: Final = {ord("\\"): r"\\", ord('"'): r"\"", ord("\n"): r"\n"}
_HELP_ESCAPES: Final = {ord("\\"): r"\\", ord("\n"): r"\n"}


def prefers_openmetrics(accept: str) -> bool:
    """Whether an `Accept` header ranks OpenMetrics 1 at least as high as Prometheus' own format."""
    theirs, plain = 0.0, 0.0
    for choice in accept.lower().split(","):
        kind, *rest = (part.strip() for part in choice.split(";"))
        values = dict(part.partition("=")[::2] for part in rest)
        try:
            rank = float(values.get("q", "1"))
        except ValueError:
            continue
        if kind == OPENMETRICS and values.get("version", "1").startswith("1"):
            theirs = max(theirs, rank)
        elif kind == "text/plain":
            plain = max(plain, rank)
    return theirs > 0 and theirs >= plain


def labels(*parts: str, **values: str | int) -> str:
    """Labels of a series as text, such as `topic="orders",queue="1"`.

    `parts` are such texts to put before the others; they may be empty.
    """
    own = [f'{name}="{_escaped(value)}"' for name, value in values.items()]
    return ",".join([part for part in parts if part] + own)


def _escaped(value: str | int) -> str:
    text = str(value)
    if text.isalnum():  # the usual case
        return text
    return text.translate(_ESCAPES).encode("utf-8", "replace").decode()


def number(value: float) -> str:
    """A value in Prometheus' notation."""
    if isinstance(value, int):
        return str(value)
    if isnan(value):
        return "NaN"
    if value in (inf, -inf):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


class HistogramPoint(NamedTuple):
    """A distribution: counts by upper bound, each without those of smaller bounds; the last bound is `+Inf`.
    `total` is the sum of the values.
    """

    buckets: Mapping[str, int]
    total: float


class Family:
    """The series of one metric; `add` takes no more than the bound.

    `kind` is `gauge`, `counter` or `histogram`. The name of a counter ends with `_total`.
    """

    __slots__ = ("_most", "about", "kind", "left_out", "name", "points")

    def __init__(self, name: str, kind: str, about: str, most: int) -> None:
        self.name = name
        self.kind = kind
        self.about = about
        self._most = most
        self.points: list[tuple[str, float | HistogramPoint]] = []
        """Labels, see `labels`, with the value."""
        self.left_out = 0

    def __repr__(self) -> str:
        return f"<Family {self.name} {len(self.points)} series, {self.left_out} left out>"

    def add(self, label: str, value: float | HistogramPoint) -> None:
        """Add a series with these labels, see `labels`."""
        if len(self.points) >= self._most:
            self.left_out += 1
        else:
            self.points.append((label, value))

    def add_histogram(self, label: str, buckets: Mapping[str, int], total: float) -> None:
        """Add a histogram, see `HistogramPoint`."""
        self.add(label, HistogramPoint(buckets, total))

    def lines(self, *, openmetrics: bool = False) -> Iterator[str]:
        """The lines; none for a metric without series.

        OpenMetrics describes a counter under its name without `_total`.
        """
        if not self.points:
            return
        name = self.name
        described = name.removesuffix(COUNTER_END) if openmetrics and self.kind == "counter" else name
        about = self.about.translate(_ESCAPES if openmetrics else _HELP_ESCAPES)
        yield f"# HELP {described} {about}\n# TYPE {described} {self.kind}\n"
        for label, value in self.points:
            if isinstance(value, HistogramPoint):
                yield from _histogram_lines(name, label, value)
            else:
                yield f"{name}{{{label}}} {number(value)}\n" if label else f"{name} {number(value)}\n"


def _histogram_lines(name: str, label: str, point: HistogramPoint) -> Iterator[str]:
    count, before = 0, f"{label}," if label else ""
    for bound, more in point.buckets.items():
        count += more
        yield f'{name}_bucket{{{before}le="{bound}"}} {count}\n'
    inside = f"{{{label}}}" if label else ""
    yield f"{name}_count{inside} {count}\n{name}_sum{inside} {number(point.total)}\n"


class Exposition:
    """Metrics by name. Parts of a process that report the same metric share its family."""

    def __init__(self, series_max: int) -> None:
        self.series_max = series_max
        self._families: dict[str, Family] = {}

    def gauge(self, name: str, about: str) -> Family:
        """A value that goes up and down."""
        return self._family(name, "gauge", about)

    def counter(self, name: str, about: str) -> Family:
        """A value that only grows; the name ends with `_total`."""
        return self._family(name, "counter", about)

    def histogram(self, name: str, about: str) -> Family:
        """The distribution of a value."""
        return self._family(name, "histogram", about)

    def _family(self, name: str, kind: str, about: str) -> Family:
        found = self._families.get(name)
        if found is None:
            found = self._families[name] = Family(name, kind, about, self.series_max)
        return found

    @property
    def families(self) -> tuple[Family, ...]:
        """All metrics, also those without series."""
        return tuple(self._families.values())

    def left_out(self) -> dict[str, int]:
        """Number of series left out, by the names of the metrics that lack some."""
        return {name: one.left_out for name, one in self._families.items() if one.left_out}

    def count_left_out(self) -> None:
        """Add the metric that says what was left out; call after all others were added."""
        lacking = self.left_out()
        last = self.gauge(LEFT_OUT, "Series beyond the setting metricsSeriesMax, which are not told.")
        for name, count in lacking.items():
            last.add(labels(metric=name), count)

    def rendering(self, *, openmetrics: bool = False) -> Iterator[bytes]:
        """The text in chunks, one a step; in OpenMetrics' format if asked."""
        self.count_left_out()
        waiting: list[str] = []
        for family in self._families.values():
            for line in family.lines(openmetrics=openmetrics):
                waiting.append(line)
                if len(waiting) >= CHUNK_LINES:
                    yield "".join(waiting).encode()
                    waiting.clear()
        if openmetrics:
            waiting.append("# EOF\n")
        if waiting:
            yield "".join(waiting).encode()


class Aside(NamedTuple):
    """Steps for another thread. They take long, and use nothing that belongs to the loop."""

    steps: Iterator[object]


Collecting: TypeAlias = Iterable[Aside | None]
"""The steps of a collection: on the loop, of well below a millisecond, and those for another thread."""


class Operated(Protocol):
    """What an operator sees of a server: its figures and its faults."""

    @property
    def node(self) -> str:
        """Kind and name, such as `broker broker-a`."""

    def collect(self, into: Exposition) -> Collecting:
        """Add the figures, in steps; see `transport.figures.collected`."""

    def faults(self) -> list[str]:
        """The reasons why it needs a restart or an operator; empty if there are none."""

    def lacks(self) -> list[str]:
        """The reasons why clients should not use it now; empty when it is ready. Does not repeat `faults`."""


class Starting:
    """A server that does not serve yet, see `Operated`. `why` says what it does."""

    def __init__(self, node: str, why: str = "it is starting or stopping") -> None:
        self._node = node
        self._why = why

    @property
    def node(self) -> str:
        """Its kind and name."""
        return self._node

    def collect(self, into: Exposition) -> Collecting:
        """That it has not started is all there is."""
        kind, _, name = self._node.partition(" ")
        about = "1 while a server starts, recovers its store or changes its role."
        into.gauge("sparrow_starting", about).add(labels(node_type=kind, node_id=name), 1)
        return ()

    def faults(self) -> list[str]:
        """Nothing is wrong."""
        return []

    def lacks(self) -> list[str]:
        """It is not ready."""
        return [self._why]
