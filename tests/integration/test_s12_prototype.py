"""One point of the study of section 5.1, with real processes."""

from __future__ import annotations

import pytest

from qanat.studies.s12_prototype import Point, Timing, measure


@pytest.mark.paper("S12")
def test_real_proxies_carry_what_real_drivers_publish() -> None:
    point = Point(2, 1, 0.0, 0.0)
    for window_s in (0.5, 2.0, 8.0, 20.0):  # on a busy machine events take their time
        if not point.events_per_s:
            point = measure(2, 1, Timing(warm_s=0.3, window_s=window_s))
    assert point.events_per_s > 0
    assert point.published_per_s > 0
