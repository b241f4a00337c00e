"""The columnar evaluator and the index give the answers of a naive model that looks at one event at a
time."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.property.naive_filters import batches, contexts, contextual_tests, filters, naive, plain_tests

from qanat.events.batch import Batch
from qanat.events.filters import Context, FilterIndex, collects, evaluate, implies, plan
from qanat.events.filters import model as m


@pytest.mark.paper("W8")
@given(filters(plain_tests), batches())
@settings(max_examples=examples(250))
def test_columnar_equals_model(f: m.Filter, batch: Batch) -> None:
    assert evaluate(f, batch).tolist() == naive(f, batch)


@pytest.mark.paper("S3")
@given(filters(plain_tests | contextual_tests), batches(), contexts)
@settings(max_examples=examples(150))
def test_contextual_equals_model(f: m.Filter, batch: Batch, gc: Context) -> None:
    expected = naive(f, batch, gc)
    assert evaluate(f, batch, gc).tolist() == expected
    assert collects(f, batch, gc).tolist() == [
        e and int(s) < gc.seq for e, s in zip(expected, batch.seqs(), strict=True)
    ]


@pytest.mark.paper("W8")
@given(st.lists(filters(plain_tests), max_size=12), st.lists(batches(), min_size=1, max_size=3), st.data())
@settings(max_examples=examples(200))
def test_index_equals_model(some: list[m.Filter], several: list[Batch], data: st.DataObject) -> None:
    # With a few filters no key is crowded: lower the bar, so that every way of filing them is taken.
    with mock.patch.object(plan, "CROWD", data.draw(st.sampled_from([0.0, plan.CROWD]))):
        compare_index(some, several, data)


def compare_index(some: list[m.Filter], several: list[Batch], data: st.DataObject) -> None:
    index, living = FilterIndex(), dict[int, m.Filter]()
    for step, batch in enumerate(several):
        for i, f in enumerate(some):
            if data.draw(st.booleans()):
                id = -step * 100 - i
                index.add(id, f)
                living[id] = f
        for id in list(living):
            if data.draw(st.integers(0, 3)) == 0:
                index.remove(id)
                del living[id]
        matches = index.match(batch)
        assert len(index) == len(living)
        assert matches.offsets[0] == 0
        assert matches.offsets[-1] == len(matches.ids)
        answers = {id: naive(f, batch) for id, f in living.items()}
        for i in range(batch.count):
            assert matches.of(i).tolist() == [id for id, answer in answers.items() if answer[i]]


@pytest.mark.paper("S2")
@given(
    filters(plain_tests | contextual_tests),
    contexts,
    filters(plain_tests | contextual_tests),
    contexts,
    batches(),
)
@settings(max_examples=examples(250))
def test_implication_has_no_counterexample(
    f: m.Filter, gc_f: Context, g: m.Filter, gc_g: Context, batch: Batch
) -> None:
    if implies(f, gc_f, g, gc_g):
        before = batch.seqs() < np.uint64(gc_f.seq)
        assert not (evaluate(f, batch, gc_f) & before & ~evaluate(g, batch, gc_g)).any()
