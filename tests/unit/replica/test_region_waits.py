"""What a region that stands still says: whom it waits for, and not before it has lasted."""

from types import SimpleNamespace
from typing import Any

from qanat.protocols.chain.recovery import Waits
from qanat.replica.waits import Waiting, sentence_of


def machine(waits: Waits | None) -> Any:
    return SimpleNamespace(manager=SimpleNamespace(waits=waits))


def test_the_sentence_says_who_why_and_what_to_do() -> None:
    said = sentence_of(Waits("it has forgotten", ("eu/proxy-2", "eu/proxy-3"), ("eu/proxy-1",)), "eu")
    assert (
        said
        == "the chain of eu waits for eu/proxy-2, eu/proxy-3 and eu/proxy-1 (it is back, but without all that"
        " it had): it has forgotten; start what is missing, with its disk, or, if it is gone for ever, run"
        " `qanat coordinator rebuild --region eu --without eu/proxy-2 --without eu/proxy-3 --without"
        " eu/proxy-1`"
    )


def test_it_is_told_at_once_and_complained_of_once_when_it_lasts() -> None:
    waiting = Waiting("eu", "eu/coordinator", 2.0)
    stuck = machine(Waits("it has forgotten", ("eu/proxy-2",)))
    assert [waiting.look(now_s, stuck, True) for now_s in (1.0, 2.0, 3.5, 4.0)] == [False, False, True, False]
    assert waiting.why == waiting.at_once != ""
    assert not waiting.look(5.0, machine(None), True)
    assert waiting.why == waiting.at_once == ""


def test_a_coordinator_that_does_not_answer_is_named_when_it_lasts() -> None:
    waiting = Waiting("eu", "eu/coordinator", 2.0)
    assert not waiting.look(1.0, machine(None), False)
    assert waiting.at_once == ""
    assert waiting.look(3.0, machine(None), False)
    assert waiting.why.startswith("eu/coordinator, the coordinator of eu, does not answer")
    assert not Waiting("eu", "eu/coordinator", 2.0).look(3.0, None, False)
