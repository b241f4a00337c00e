"""The house's policy beside the paper's on the workload of Fig. 7, in virtual time."""

from __future__ import annotations

import pytest

from qanat.studies.w15.model import modelled

pytestmark = [pytest.mark.paper("W7"), pytest.mark.paper("W15")]


@pytest.mark.parametrize(("caravans", "share"), [(2, 0.8), (3, 0.9), (4, 0.97), (7, 1.01), (10, 1.01)])
def test_least_waiting_makes_updates_less_late_than_the_papers_policy_on_as_many_readers(
    caravans: int, share: float
) -> None:
    ours, theirs = modelled("least-waiting", caravans), modelled("threshold", caravans)
    assert ours.latency_s <= share * theirs.latency_s
    if caravans > 3:
        assert ours.amplification <= 1.01 * theirs.amplification, "and reads no more"


def test_more_readers_read_more_and_make_updates_less_late() -> None:
    one, ten = modelled("threshold", 1), modelled("threshold", 10)
    assert ten.latency_s < 0.6 * one.latency_s
    assert one.amplification == pytest.approx(1, abs=0.05)
    assert ten.amplification == pytest.approx(5.5, abs=0.2), "ten tenths, nine, eight …"
