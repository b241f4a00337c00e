"""Counters, gauges and latency histograms of one node.

On the hot path a counter is one attribute: `counter.value += n`, no lock and no lookup, for everything runs
on the node's one event loop. Prometheus' own objects are made only when somebody reads `/metrics`. A value
that some object already keeps is best exported with `gauge_of` or `counter_of`, which cost nothing between
two readings.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from qanat.events.errors import LocalError

LATENCY_BOUNDS_S = tuple(
    m * 10.0**e for e in range(-5, 1) for m in (1, 2, 5)
)  # 10 µs to 5 s: three buckets for each factor of ten


class Counter:
    """Only grows. `value` may be added to directly."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def inc(self, amount: int = 1) -> None:
        self.value += amount


class Gauge:
    """Goes up and down. `value` may be set directly."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0


class Histogram:
    """Counts observations by upper bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = LATENCY_BOUNDS_S) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def quantile(self, q: float) -> float:
        """The upper bound of the bucket that holds the q-th part; infinite above the last; 0 when empty."""
        rank = q * sum(self.counts)
        seen = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            seen += count
            if count and seen >= rank:
                return bound
        return 0.0


_C = TypeVar("_C", Counter, Gauge, Histogram)


class Family(Generic[_C]):
    """One name with labels: `family.labels("eof")` is the child, made on first use and then a dict lookup.

    A family holds at most `limit` children, so a peer that makes up label values cannot fill the memory;
    from there on all new ones share the child `other`.
    """

    def __init__(self, make: Callable[[], _C], label_names: tuple[str, ...], limit: int = 1000) -> None:
        self.label_names = label_names
        self.children: dict[tuple[str, ...], _C] = {}
        self.sample: _C = make()  # never counted; tells what kind of family this is, even while it is empty
        self._make: Callable[[], _C] = make
        self._limit = limit

    def labels(self, *values: str) -> _C:
        child = self.children.get(values)
        if child is None:
            if len(values) != len(self.label_names):
                raise LocalError(f"this metric has the labels {self.label_names}, not {len(values)} of them")
            if len(self.children) >= self._limit:
                values = ("other",) * len(values)
            child = self.children.setdefault(values, self._make())
        return child


_Source = Callable[[], Iterable[tuple[tuple[str, ...], float]]]


class Metrics(Collector):
    """All metrics of a node, in a registry of its own: two nodes in one process do not mix."""

    def __init__(self, prefix: str = "qanat") -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._prefix = prefix
        self._families: dict[str, tuple[str, Family[Counter] | Family[Gauge] | Family[Histogram]]] = {}
        self._sources: dict[str, tuple[str, bool, tuple[str, ...], _Source]] = {}
        self.registry.register(self)

    def counter(self, name: str, help_: str) -> Counter:
        return self.counters(name, help_, ()).labels()

    def counters(self, name: str, help_: str, labels: tuple[str, ...]) -> Family[Counter]:
        """A family of counters; asking again for the same name gives the same family."""
        return self._family(name, help_, Counter, labels)

    def gauge(self, name: str, help_: str) -> Gauge:
        return self.gauges(name, help_, ()).labels()

    def gauges(self, name: str, help_: str, labels: tuple[str, ...]) -> Family[Gauge]:
        return self._family(name, help_, Gauge, labels)

    def histogram(self, name: str, help_: str, bounds: Sequence[float] = LATENCY_BOUNDS_S) -> Histogram:
        return self.histograms(name, help_, (), bounds).labels()

    def histograms(
        self, name: str, help_: str, labels: tuple[str, ...], bounds: Sequence[float] = LATENCY_BOUNDS_S
    ) -> Family[Histogram]:
        return self._family(name, help_, lambda: Histogram(bounds), labels)

    def gauge_of(self, name: str, help_: str, labels: tuple[str, ...], source: _Source) -> None:
        """Exports what `source()` says at each reading: pairs of label values and number."""
        self._sources[name] = (help_, False, labels, source)

    def counter_of(self, name: str, help_: str, labels: tuple[str, ...], source: _Source) -> None:
        """As `gauge_of`, for numbers that only grow."""
        self._sources[name] = (help_, True, labels, source)

    def label_names(self) -> dict[str, tuple[str, ...]]:
        """Of each metric, without the prefix."""
        return {name: family.label_names for name, (_, family) in self._families.items()} | {
            name: labels for name, (_, _, labels, _) in self._sources.items()
        }

    def render(self) -> bytes:
        """The Prometheus text format."""
        return generate_latest(self.registry)

    def collect(self) -> Iterable[Metric]:
        for name, (help_, family) in self._families.items():
            yield _snapshot(f"{self._prefix}_{name}", help_, family)
        for name, (help_, counts, labels, source) in self._sources.items():
            kind = CounterMetricFamily if counts else GaugeMetricFamily
            metric = kind(f"{self._prefix}_{name}", help_, labels=labels)
            for values, number in source():
                metric.add_metric(values, number)
            yield metric

    def _family(self, name: str, help_: str, make: Callable[[], _C], labels: tuple[str, ...]) -> Family[_C]:
        known = self._families.get(name)
        if known is not None:
            return known[1]  # type: ignore[return-value]
        family = Family(make, labels)
        self._families[name] = (help_, family)
        return family


def _snapshot(name: str, help_: str, family: Family[Counter] | Family[Gauge] | Family[Histogram]) -> Metric:
    sample = family.sample
    if isinstance(sample, Histogram):
        histograms = HistogramMetricFamily(name, help_, labels=family.label_names)
        for values, child in family.children.items():
            assert isinstance(child, Histogram)
            running, buckets = 0, []
            for bound, count in zip((*child.bounds, float("inf")), child.counts, strict=True):
                running += count
                buckets.append(("+Inf" if bound == float("inf") else repr(float(bound)), float(running)))
            histograms.add_metric(values, buckets, child.total)
        return histograms
    kind = GaugeMetricFamily if isinstance(sample, Gauge) else CounterMetricFamily
    metric = kind(name, help_, labels=family.label_names)
    for values, child in family.children.items():
        assert not isinstance(child, Histogram)
        metric.add_metric(values, child.value)
    return metric
