"""What benchmarks count."""

import os
import time

from qanat.bench.figures import cpu_s, medians


def test_the_cpu_time_of_processes() -> None:
    before, own = cpu_s([os.getpid()]), time.process_time()
    while time.process_time() - own < 0.1:
        pass
    assert cpu_s([os.getpid()]) > before


def test_medians_are_of_each_figure() -> None:
    assert medians([{"a": 1.0, "b": 9.0}, {"a": 3.0, "b": 1.0}, {"a": 2.0, "b": 5.0}]) == {"a": 2.0, "b": 5.0}
