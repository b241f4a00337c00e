"""Options of Spark's Kafka source: each is read with Kafka's meaning, or answered with the option that says
it here."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from qanat.events.errors import LocalError
from qanat.pipeline.changes.options import ChangesOptions
from qanat.pipeline.sink.options import SinkOptions
from qanat.pipeline.source.kafka_options import KafkaOption, translated
from qanat.pipeline.source.options import BadOption, StreamOptions

pytestmark = pytest.mark.paper("D1")

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


def read(**options: str) -> StreamOptions:
    return StreamOptions.read({"subscribe": "orders, prices", **options})


def offsets(orders: Any, prices: Any = -1) -> str:
    return json.dumps({"orders": {"0": orders}, "prices": {"0": prices}})


def test_streams_are_subscribed_to() -> None:
    assert read().streams == ("orders", "prices")
    found = StreamOptions.read({"SubscribePattern": "ord.*", "startingOffsets": '{"orders": {"0": 7}}'})
    assert [found.reads(name) for name in ("orders", "orderly", "border")] == [True, True, False]
    assert (found.start_of("orders"), found.start_of("orderly")) == (7, "earliest")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": "latest"}, ("latest", "latest")),
        ({"STARTINGOFFSETS": "earliest"}, ("earliest", "earliest")),
        ({"startingoffsets": offsets(23, -2)}, (23, "earliest")),
        ({"startingOffsets": offsets(0)}, (1, "latest")),
        ({"startingTimestamp": str(int(NOON.timestamp() * 1000))}, (NOON, NOON)),
        (
            {"startingOffsetsByTimestamp": offsets(int(NOON.timestamp() * 1000), 0)},
            (NOON, datetime(1970, 1, 1, tzinfo=UTC)),
        ),
    ],
)
def test_where_it_starts(options: dict[str, str], expected: tuple[Any, Any]) -> None:
    found = read(**options)
    assert (found.start_of("orders"), found.start_of("prices")) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ("latest", "latest")),
        ({"endingOffsets": "latest"}, ("latest", "latest")),
        ({"endingOffsets": offsets(23)}, (22, "latest")),  # Kafka's end is the first that is not read
        ({"endingOffsets": offsets(0, 1)}, (0, 0)),
        ({"endingTimestamp": str(int(NOON.timestamp() * 1000))}, (NOON, NOON)),
        ({"end": '{"orders": 5, "prices": "latest"}'}, (5, "latest")),
    ],
)
def test_where_it_ends(options: dict[str, str], expected: tuple[Any, Any]) -> None:
    found = read(**options)
    assert (found.end_of("orders"), found.end_of("prices")) == expected
    assert found.until_the_end == (expected == ("latest", "latest"))


def test_limits_and_losses() -> None:
    assert read(maxOffsetsPerTrigger="5").rows == 5
    for text, losses in (("true", "stop"), ("False", "skip")):
        assert read(failOnDataLoss=text).losses == losses
        assert ChangesOptions.read({"changes": "file:///x/*", "failOnDataLoss": text}).losses == losses
    assert read().losses == "stop"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"minPartitions": "4"}, "'minPartitions' .* say 'partitions'"),
        ({"minOffsetsPerTrigger": "4"}, r"say trigger\(processingTime=…\)"),
        ({"kafka.bootstrap.servers": "a:9092"}, "say 'url'"),
        ({"kafka.security.protocol": "SSL"}, "leave it out"),
        ({"kafka.group.id": "g"}, "checkpoint"),
        ({"includeHeaders": "true"}, "'attributes' is always there"),
        ({"assign": '{"orders":[0]}'}, "a stream has one partition: say 'stream'"),
        ({"failOnDataLoss": "maybe"}, "true or false, not 'maybe'"),
        ({"failOnDataLoss": "true", "losses": "stop"}, "'losses' and 'failOnDataLoss' say the same"),
        ({"stream": "orders"}, "'stream' and 'subscribe' say the same"),
        (
            {"startingOffsets": "latest", "startingTimestamp": "1"},
            "'startingOffsets' and 'startingTimestamp' say the same",
        ),
        ({"startingOffsets": "newest"}, "'startingOffsets' is earliest, latest or JSON .* not 'newest'"),
        ({"startingOffsets": "{x"}, "is earliest, latest or JSON"),
        ({"startingOffsets": '{"orders": 5}'}, "one partition, so write"),
        ({"startingOffsets": '{"orders": {"0": 1, "1": 5}}'}, "one partition"),
        ({"startingOffsets": offsets("5")}, "no offset"),
        ({"startingOffsets": offsets(-3)}, "no offset"),
        ({"endingOffsets": offsets(-2)}, "nothing ends at the earliest"),
        ({"endingOffsets": "earliest"}, "'endingOffsets' is latest or JSON"),
        ({"startingTimestamp": "today"}, "milliseconds"),
        ({"startingTimestamp": "9" * 20}, "no time that there is"),
        ({"startingOffsets": '{"orders": {"0": 1}}'}, "must say where each of orders, prices begins"),
        ({"pattern": "o.*"}, "'stream' and 'pattern' both"),
        ({"end": "earliest"}, "'end' is latest, a sequence number or a time"),
    ],
)
def test_what_has_no_meaning_here_is_answered(options: dict[str, str], words: str) -> None:
    with pytest.raises((KafkaOption, BadOption), match=words):
        read(**options)


def test_a_pattern_that_is_none_is_said() -> None:
    with pytest.raises(BadOption, match="'pattern' is no regular expression"):
        StreamOptions.read({"subscribePattern": "orders("})


def test_the_sink_answers_as_well() -> None:
    with pytest.raises(LocalError, match=r"'topic' .* say 'stream'"):
        SinkOptions.read({"topic": "orders"})


def test_what_was_translated_stays_as_it_is() -> None:
    once = translated({"subscribe": "a", "startingOffsets": '{"a": {"0": 3}}', "Url": "qanat://x"})
    assert once == {"url": "qanat://x", "stream": "a", "start": '{"a": "3"}'}
    assert translated(once) == once
