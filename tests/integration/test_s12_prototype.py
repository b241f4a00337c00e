"""One point of the study of section 5.1, with real processes."""

from __future__ import annotations

import pytest

from qanat.studies.s12.prototype import Timing, measure


@pytest.mark.paper("S12")
def test_real_proxies_carry_what_real_drivers_publish() -> None:
    point = measure(2, 1, Timing(drive_s=0.3))
    assert point.events_per_s > 0
    assert point.published_per_s > 0
