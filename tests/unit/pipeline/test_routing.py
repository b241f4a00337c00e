"""Updates taken apart by routes: as a plain loop would, and what cannot be routed is neither lost nor in the
way."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.pipeline.logs import Row, sequences, shard_of, updates

from qanat.capture.events import events_of
from qanat.pipeline.ingest import routing
from qanat.pipeline.ingest.routes import Routes, Way
from qanat.pipeline.ingest.routing import Routed, route

rows = st.builds(
    Row,
    st.sampled_from(["orders", "prices"]),
    st.integers(0, 30),
    st.sampled_from(["NL", "BE", "DE", None]),
    st.integers(0, 200) | st.none(),
) | st.sampled_from([Row("orders", None), Row("prices", None)])


def streams_of(routed: Routed) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for part in routed.parts:
        for stream, events in part.items():
            found.setdefault(stream, []).extend(sequences(events))
    return found


@pytest.mark.paper("D2")
@given(st.lists(rows, max_size=40), st.integers(1, 5))
def test_every_update_goes_where_a_loop_would_send_it(given_rows: list[Row], shards: int) -> None:
    routes = Routes(
        (
            Way("all"),
            Way("orders-{shard}", ("orders",)),
            Way("large", where="total in 100.."),
            Way("large", ("prices",), "country = NL"),
        ),
        where="country != DE",
        shards=f"hash:{shards}",
        unrouted="dead-letter",
    )
    expected: dict[str, list[int]] = {}

    def goes(stream: str, position: int) -> None:
        expected.setdefault(stream, []).append(position)

    for at, row in enumerate(given_rows, 1):
        if row.country == "DE":
            continue
        goes("all", at)
        if row.table == "orders":
            shard = shard_of(row, shards)
            for one in range(shards) if shard is None else [shard]:
                goes(f"orders-{one}", at)
        if (row.total or 0) >= 100 or (row.table == "prices" and row.country == "NL"):
            goes("large", at)
    routed = route(updates(given_rows), routes, "shop")
    assert streams_of(routed) == expected
    assert routed.letters == []
    assert (routed.read, routed.chosen) == (len(given_rows), len(expected.get("all", [])))


def test_what_no_route_takes_is_dropped_or_put_aside() -> None:
    given_rows = [Row("orders", 1), Row("prices", 2)]
    way = Way("orders", ("orders",))
    assert route(updates(given_rows), Routes((way,)), "shop").letters == []
    (letter,) = route(updates(given_rows), Routes((way,), unrouted="dead-letter"), "shop").letters
    assert (letter.position, letter.stage, letter.table) == ((2, 0), "route", "shop.prices")
    assert json.loads(letter.original)["after"]["id"] == 2


def test_without_a_shard_there_is_no_stream_to_go_to() -> None:
    given_rows = [
        Row("orders", 1, "NL"),
        Row("orders", 2, None),
        Row("orders", None),
        Row("orders", 3, "x" * 300),
    ]
    routed = route(updates(given_rows), Routes((Way("by-{shard}"),), shards="country"), "shop")
    assert streams_of(routed) == {"by-NL": [1]}
    assert [letter.position.sequence for letter in routed.letters] == [2, 3, 4]
    assert "it has no shard (country)" in routed.letters[0].reason
    assert "no name of a stream" in routed.letters[2].reason


def test_an_event_that_fits_into_no_frame_is_put_aside() -> None:
    given_rows = [Row("orders", 1, "NL"), Row("orders", 2, "x" * 50_000), Row("orders", 3, "y" * 60_000)]
    routes = Routes((Way("all"),), where="not id = 3", largest_bytes=20_000)
    routed = route(updates(given_rows), routes, "shop")
    assert streams_of(routed) == {"all": [1]}
    (letter,) = routed.letters
    assert letter.position.sequence == 2
    assert letter.stage == "publish"
    assert "over the limit of 20,000" in letter.reason
    assert json.loads(letter.original)["after"]["country"] == "x" * 50_000


@pytest.mark.paper("D2")
@given(st.lists(st.booleans(), min_size=1, max_size=30))
def test_an_update_that_cannot_be_translated_is_found_and_the_others_go_on(poison: list[bool]) -> None:
    def failing(found: Any, sharding: Any) -> Any:
        if any(update.after is not None and update.after["country"] == "poison" for update in found.rows()):
            raise pa.ArrowInvalid("a value that cannot be")
        return events_of(found, sharding)

    given_rows = [Row("orders", at, "poison" if bad else "NL") for at, bad in enumerate(poison)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routing, "events_of", failing)
        routed = route(updates(given_rows), Routes((Way("all"),)), "shop")
    good = [at for at, bad in enumerate(poison, 1) if not bad]
    assert streams_of(routed) == ({"all": good} if good else {})
    assert [letter.position.sequence for letter in routed.letters] == [
        at for at, bad in enumerate(poison, 1) if bad
    ]
    for letter in routed.letters:
        assert (letter.stage, letter.form, letter.table) == ("translate", "arrow", "shop.orders")
        assert letter.reason == "ArrowInvalid: a value that cannot be"
        assert pa.ipc.open_stream(letter.original).read_all()["after.country"].to_pylist() == ["poison"]


def test_large_chunks_are_filtered_in_pieces() -> None:
    given_rows = [Row("orders", at, "x" * 900, at) for at in range(5_000)]
    routed = route(updates(given_rows), Routes((Way("all"),), where="total in 2000.."), "shop")
    assert streams_of(routed) == {"all": list(range(2001, 5_001))}


def test_a_stream_keeps_positions_of_each_choice_under_a_name_of_its_own() -> None:
    whole = Routes((Way("all"), Way("some", where="total in 5..")))
    assert whole.source_of("shop", "all") == "shop"
    assert whole.source_of("shop", "some") != whole.source_of("other", "some")
    names = {
        routes.source_of("shop", "some")
        for routes in (
            whole,
            Routes((Way("some", where="total in 6.."),)),
            Routes((Way("some", ("orders",)),)),
            Routes((Way("some"),), tables=("orders",)),
            Routes((Way("so{shard}"),), shards="hash:2"),
            Routes((Way("so{shard}"),), shards="hash:3"),
        )
    }
    assert len(names) == 6
    for same in (
        Routes((Way("some", where="(total in 5..)"),)),
        Routes((Way("some"),), where="total in 5.."),
    ):
        assert same.source_of("shop", "some") == whole.source_of("shop", "some")


def test_the_mark_of_routes_changes_with_them() -> None:
    marks = {
        Routes((Way("a"),)).mark,
        Routes((Way("a"), Way("b"))).mark,
        Routes((Way("a"),), unrouted="dead-letter").mark,
        Routes((Way("a", where="x = 1"),)).mark,
    }
    assert len(marks) == 4
    assert Routes((Way("a"), Way("b"))).mark == Routes((Way("b"), Way("a"))).mark
