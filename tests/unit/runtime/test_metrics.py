"""Metrics of a node and their text form."""

import pytest

from qanat.events.errors import LocalError
from qanat.runtime.metrics import Histogram, Metrics


def test_render() -> None:
    metrics = Metrics()
    counter = metrics.counter("frames", "Frames.")
    counter.value += 3
    counter.inc()
    metrics.gauge("lag", "Lag.").value = 2.5
    metrics.counters("closed", "Closed.", ("reason",)).labels("eof").inc(2)
    histogram = metrics.histogram("delay_seconds", "Delay.", (0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7):
        histogram.observe(value)
    metrics.gauge_of("depth", "Depth.", ("queue",), lambda: [(("a",), 1), (("b",), 2)])
    metrics.counter_of("moved_bytes", "Bytes.", (), lambda: [((), 9)])
    text = metrics.render().decode()
    for line in (
        "qanat_frames_total 4.0",
        "qanat_lag 2.5",
        'qanat_closed_total{reason="eof"} 2.0',
        'qanat_delay_seconds_bucket{le="0.1"} 2.0',
        'qanat_delay_seconds_bucket{le="1.0"} 3.0',
        'qanat_delay_seconds_bucket{le="+Inf"} 4.0',
        "qanat_delay_seconds_count 4.0",
        'qanat_depth{queue="b"} 2.0',
        "qanat_moved_bytes_total 9.0",
        "# TYPE qanat_lag gauge",
        "# TYPE qanat_delay_seconds histogram",
    ):
        assert line in text.splitlines(), line


def test_two_nodes_in_one_process_do_not_mix() -> None:
    one, two = Metrics(), Metrics()
    one.counter("x", "X.").inc()
    assert "qanat_x_total 1.0" in one.render().decode()
    assert "qanat_x" not in two.render().decode()


def test_the_same_name_is_the_same_metric() -> None:
    metrics = Metrics()
    metrics.counter("x", "X.").inc()
    assert metrics.counter("x", "X.").value == 1


def test_label_values_are_bounded() -> None:
    family = Metrics().counters("x", "X.", ("who",))
    for i in range(5000):
        family.labels(f"made up {i}").inc()
    assert len(family.children) <= 1001
    assert family.labels("other").value == 4000
    with pytest.raises(LocalError):
        family.labels("a", "b")


def test_quantiles() -> None:
    histogram = Histogram((1, 2, 3))
    assert histogram.quantile(0.5) == 0
    for value in (0.5, 1.5, 1.6, 9):
        histogram.observe(value)
    assert [histogram.quantile(q) for q in (0.25, 0.5, 0.75, 1.0)] == [1, 2, 2, float("inf")]


def test_an_empty_family_has_its_type() -> None:
    metrics = Metrics()
    metrics.histograms("wait_seconds", "Wait.", ("who",))
    assert "# TYPE qanat_wait_seconds histogram" in metrics.render().decode()
