"""Every role is killed at random and links are cut, under load: what was acknowledged reaches everyone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.integration.drilling import play
from tests.rotation import few

KILLS = int(os.environ.get("QANAT_TEST_KILLS", few(100, rarely=30)))


@pytest.mark.rotating
@pytest.mark.slow
@pytest.mark.paper("S1", "S4", "S5", "S7", "S9", "S11")
def test_whatever_is_killed_and_cut_every_acknowledged_event_reaches_everyone_once_in_order(
    tmp_path: Path,
) -> None:
    play(tmp_path, KILLS)
