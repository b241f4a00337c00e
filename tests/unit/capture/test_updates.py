"""Updates as columns: images, slices, resumes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from qanat.capture import Column, Op, Run, Table, Updates
from qanat.events.errors import InvariantError
from qanat.events.position import Position

PRICES = Table("shop", "", "prices", (Column("id", pa.int64(), key=True), Column("price", pa.string())))


def run(*rows: tuple[int, int, Op, dict[str, Any] | None, dict[str, Any] | None]) -> Run:
    def image(values: Sequence[dict[str, Any] | None]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([value or {} for value in values], PRICES.arrow)

    return Run(
        PRICES,
        np.array([op for _, _, op, _, _ in rows], np.uint8),
        np.array([sequence for sequence, *_ in rows], np.uint64),
        np.array([index for _, index, *_ in rows], np.uint32),
        np.zeros(len(rows), np.int64),
        pa.array([f"0-1-{sequence}" for sequence, *_ in rows]).dictionary_encode(),
        image([after for *_, after in rows]),
        image([before for _, _, _, before, _ in rows]),
    )


SAMPLE = run(
    (7, 0, Op.INSERT, None, {"id": 1, "price": None}),
    (7, 1, Op.UPDATE, {"id": 1, "price": None}, {"id": 1, "price": ""}),
    (9, 0, Op.DELETE, {"id": 1, "price": ""}, None),
)


@pytest.mark.paper("W2")
def test_rows_have_the_images_that_their_operation_has() -> None:
    inserted, updated, deleted = Updates([SAMPLE]).rows()
    assert (inserted.before, inserted.after) == (None, {"id": 1, "price": None})
    assert (updated.before, updated.after) == ({"id": 1, "price": None}, {"id": 1, "price": ""})
    assert (deleted.before, deleted.after) == ({"id": 1, "price": ""}, None)
    assert deleted.transaction == "0-1-9"
    assert deleted.position == Position(9, 0)


def test_a_table_is_known_by_its_columns_not_by_its_history() -> None:
    assert Table("shop", "", "prices", PRICES.columns) == PRICES
    assert PRICES.path == "shop.prices"
    assert PRICES.key == ("id",)


@pytest.mark.parametrize(
    ("position", "left"),
    [
        (Position(6, 9), [(7, 0), (7, 1), (9, 0)]),
        (Position(7, 0), [(7, 1), (9, 0)]),
        (Position(8, 0), [(9, 0)]),
        (Position(9, 0), []),
    ],
)
def test_a_resume_drops_what_was_had(position: Position, left: list[tuple[int, int]]) -> None:
    resumed = Updates([SAMPLE.slice(0, 1), SAMPLE.slice(1, 3)]).after(position)
    assert [tuple(update.position) for update in resumed.rows()] == left
    assert resumed.upto == Position(9, 0)


def test_a_slice_and_a_choice_keep_images_with_their_rows() -> None:
    both = [SAMPLE.slice(1, 3), SAMPLE.take(np.array([False, True, True]))]
    for part in both:
        assert [update.op for update in part.rows()] == [Op.UPDATE, Op.DELETE]
        assert [update.after for update in part.rows()] == [{"id": 1, "price": ""}, None]


def test_what_did_not_change_is_left_out() -> None:
    part = SAMPLE.slice(1, 2)
    kept = Run(
        part.table,
        part.ops,
        part.sequences,
        part.indexes,
        part.times_us,
        part.transactions,
        part.after,
        unchanged={"price": np.array([True])},
    )
    (update,) = kept.rows()
    assert (update.after, update.unchanged, update.before) == ({"id": 1}, ("price",), None)


def test_an_image_of_the_key_alone_has_no_other_columns() -> None:
    part = SAMPLE.slice(1, 3)
    kept = replace(part, key_only=np.array([True, False]))
    for same in (kept, kept.slice(0, 2), kept.take(np.array([True, True]))):
        assert [update.before for update in same.rows()] == [{"id": 1}, {"id": 1, "price": ""}]


def test_reading_goes_on_past_the_last_update() -> None:
    assert Updates([], Position(12, 0)).upto == Position(12, 0)
    assert not Updates([], Position(12, 0))
    with pytest.raises(InvariantError, match="cannot be read up to"):
        Updates([SAMPLE], Position(8, 0))
