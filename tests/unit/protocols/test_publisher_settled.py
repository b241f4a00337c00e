"""What a datastore that keeps its log is told: up to where nobody goes back."""

from __future__ import annotations

import pytest
from tests.unit.protocols.publisher_by_hand import NOW, Desk, row

from qanat.events.position import Position
from qanat.protocols.publisher.config import ApplicationConfig
from qanat.protocols.publisher.messages import Mark, Reached
from qanat.protocols.publisher.reading import Located, Settle, Settled


@pytest.mark.paper("W4")
def test_what_is_settled_is_said_after_its_record_and_is_the_first_of_all_datamarkers() -> None:
    desk = Desk(cache=ApplicationConfig(start="0:0"), index=ApplicationConfig(start="earliest"))

    def settled() -> list[str]:
        desk.context.take("deliver")
        desk.machine.on_request(NOW, Settle())
        return [
            str(out[1].upto)
            for out in desk.context.outputs
            if out[0] == "deliver" and isinstance(out[1], Settled)
        ]

    assert settled() == [], "nobody knows where the other begins"
    desk.machine.on_request(NOW, Located("index", "earliest", Position(0)))
    assert settled() == ["0:0"]
    desk.join("s1")
    desk.join("s2", "index")
    desk.settle()
    desk.read(row(1), row(2), row(3))
    for name in ("s1", "s2"):
        desk.handle_all(name)
        desk.say(name, Reached, (Mark(Position(2 if name == "s1" else 3), ("a",)),))
    assert settled() == ["2:0"]
    kinds = [kind for kind in desk.context.kinds() if kind in ("persist", "deliver")]
    assert kinds[-2:] == ["persist", "deliver"], "so it leaves when that is on disk"
