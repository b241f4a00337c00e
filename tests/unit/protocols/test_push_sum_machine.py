"""Push-sum's machine alone, driven by hand."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.protocols.contexts import InOrder

from qanat.kernel import Address, ProtocolInvariantError
from qanat.protocols.push_sum import (
    VALUE_UNITS,
    WEIGHT_UNITS,
    Ack,
    Estimate,
    Portion,
    PushSum,
    PushSumConfig,
    SetValue,
)

A, B, C = (Address(name) for name in "abc")


def machine(saved: Sequence[bytes] = (), **config: int) -> tuple[PushSum, InOrder]:
    context = InOrder(A)
    made = PushSum(context, msgspec.convert(config, PushSumConfig), [A, B, C])
    made.on_start(0, saved)
    context.outputs.clear()
    return made, context


def test_a_round_records_before_it_gives() -> None:
    made, context = machine(branching=2)
    made.on_request(0, SetValue(90.0))
    context.outputs.clear()
    made.on_timer(0, "round")
    assert context.kinds() == ["persist", "cast", "cast", "deliver", "timer"]
    shares = {output[2] for output in context.outputs if output[0] == "cast"}
    assert shares == {Portion(1, 30 * VALUE_UNITS, WEIGHT_UNITS // 3)}
    assert made.portion == 30 * VALUE_UNITS
    estimate = context.outputs[3][1]
    assert isinstance(estimate, Estimate)
    assert estimate.average == pytest.approx(90.0)
    assert estimate.total == pytest.approx(270.0)


@pytest.mark.paper("M6")
@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 2, 2, 3, 1, 3), (3,)])
def test_totals_make_loss_duplicates_and_order_harmless(order: tuple[int, ...]) -> None:
    made, context = machine()
    for number in order:
        made.on_message(0, B, Portion(number, 10 * number, 100 * number))
    assert (made.portion, made.weight) == (30, WEIGHT_UNITS + 300)
    acks = [output[2] for output in context.outputs if output[0] == "cast"]
    assert acks[-1] == Ack(3)


def test_an_unacknowledged_portion_is_sent_again_until_it_is_acknowledged() -> None:
    made, context = machine(retry_rounds=2)
    made.on_timer(0, "round")
    first = next(output for output in context.outputs if output[0] == "cast")
    peer, portion = Address(str(first[1])), first[2]
    assert isinstance(portion, Portion)
    context.outputs.clear()
    for _ in range(6):
        made.on_timer(0, "round")
    assert sum(output[:2] == ("cast", peer) for output in context.outputs) >= 2
    for other in (B, C):
        made.on_message(0, other, Ack(made.given[other].number))
    assert made._unacked == {}


def test_a_new_life_is_the_old_one_replayed() -> None:
    made, context = machine(branching=2)
    made.on_request(0, SetValue(7.0))
    made.on_timer(0, "round")
    made.on_message(0, B, Portion(4, -5, 6))
    records = [output[1] for output in context.outputs if output[0] == "persist"]
    again, _ = machine([record for record in records if isinstance(record, bytes)], branching=2)
    assert (again.portion, again.weight, again.own) == (made.portion, made.weight, made.own)
    assert (again.given, again.taken) == (made.given, made.taken)
    assert again._unacked == {B: 0, C: 0} or again._unacked == {C: 0, B: 0}


def test_strangers_and_absurd_values_are_refused() -> None:
    made, context = machine()
    made.on_message(0, Address("mallory"), Portion(1, 5, 5))
    made.on_request(0, SetValue(1e12))
    made.on_request(0, SetValue(float("nan")))
    assert context.kinds() == ["trace", "trace", "trace"]
    assert made.portion == 0
    with pytest.raises(ProtocolInvariantError):
        made.on_timer(0, "lunch")


def test_alone_it_knows_the_answer() -> None:
    context = InOrder(A)
    made = PushSum(context, PushSumConfig(), [A])
    made.on_start(0, ())
    made.on_request(0, SetValue(5.0))
    made.on_timer(0, "round")
    assert made.average == pytest.approx(5.0)


@given(st.integers(0, 2**63 - 1), st.integers(-(2**40), 2**40))
def test_totals_may_go_round(before: int, gift: int) -> None:
    made, _ = machine()
    made.on_message(0, B, Portion(1, before, before))
    portion, weight = made.portion, made.weight
    made.on_message(0, B, Portion(2, (before + gift) % 2**63, (before + abs(gift)) % 2**63))
    assert (made.portion - portion, made.weight - weight) == (gift, abs(gift))


@pytest.mark.parametrize("config", [{"branching": 0}, {"interval_ms": 0}, {"retry_rounds": 0}, {"b": 1}])
def test_wrong_settings_are_refused(config: dict[str, int]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(config, PushSumConfig)
