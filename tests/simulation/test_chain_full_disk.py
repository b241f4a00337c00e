"""A replica without room on its disk stays what it is: a tail shows what it has shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.simulation.chain_story import Story

from qanat.checks.chain_hosts import chain_of, history_of
from qanat.log.errors import DiskFull

SCENARIO = Path(__file__).parents[2] / "scenarios/chain_swarm.toml"


@pytest.mark.paper("S9")
@pytest.mark.parametrize("place", [1, 2], ids=["middle", "tail"])
def test_readers_of_a_chain_whose_replica_has_no_room_read_on_and_publishers_go_on_once_it_has_some(
    place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story(SCENARIO)
    story.run_until(lambda: story.serves(3))
    chain = story.chain
    assert story.publish(chain[0], 1, "a", 1) is not None
    history = history_of(story.node(chain[place]))

    def full(_batch: Any) -> None:
        raise DiskFull("no room")

    with monkeypatch.context() as patched:
        patched.setattr(history, "append_numbered", full)
        assert story.publish(chain[0], 2, "a", 2) is None
        for _ in range(500):
            story.run(0.01)
            assert story.is_serving(chain[2])
        assert story.answer(2) is None
        assert chain_of(story.node(chain[0])).follower_lacks == "no room"
    story.run_until(lambda: story.answer(2) is not None)
    assert story.chain == chain
    assert story.rows(chain[2]) == [b"a:1", b"a:2"]
    story.run(5.0)
    assert chain_of(story.node(chain[0])).follower_lacks == ""
