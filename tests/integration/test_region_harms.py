"""Two at once, processes that stand still, full disks, damaged files, clocks an hour off, under load: what
was acknowledged reaches everyone, and the audit proves it."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
from tests.integration.clocks import wrong_clocks
from tests.integration.drilling import play
from tests.integration.harming import Harms

FAULTS = int(os.environ.get("QANAT_TEST_KILLS", "300"))


@pytest.mark.soak
@pytest.mark.server("faketime")
@pytest.mark.paper("S1", "S9", "S11", "D7")
def test_whatever_happens_to_one_machine_every_acknowledged_event_reaches_everyone(tmp_path: Path) -> None:
    with wrong_clocks(tmp_path / "clocks") as clocks:
        play(tmp_path, FAULTS, partial(Harms, clocks))
