"""Options of Spark's Kafka source, for queries that come from there: each is read with Kafka's meaning, or
answered with the option that says it here.

| Kafka's option | here |
|---|---|
| `subscribe` | `stream` |
| `subscribePattern` | `pattern` |
| `startingOffsets` | `start`: `earliest`, `latest`, or JSON as `{"orders": {"0": 23, …}}`, -2 for the earliest and -1 for the latest |
| `endingOffsets` | `end`, without the number itself, as Kafka counts: `latest`, or such JSON |
| `startingTimestamp`, `endingTimestamp`, `startingOffsetsByTimestamp`, `endingOffsetsByTimestamp` | `start` and `end`, from milliseconds |
| `maxOffsetsPerTrigger` | `maxRowsPerTrigger` |
| `failOnDataLoss` | `losses`: `true` is `stop`, `false` is `skip` |

A stream has one partition, 0, and its offsets are sequence numbers, which begin at 1.
"""  # noqa: E501

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from qanat.events.errors import LocalError

EARLIEST, LATEST = -2, -1
"""What Kafka writes for the two ends where a number stands."""
_WORDS = {
    "minPartitions": "say 'partitions', the number of tasks that read at once",
    "maxRecordsPerPartition": "say 'partitions', the number of tasks that read at once",
    "minOffsetsPerTrigger": (
        "a micro-batch takes what is there: say trigger(processingTime=…) to take more at once"
    ),
    "maxTriggerDelay": (
        "a micro-batch takes what is there: say trigger(processingTime=…) to take more at once"
    ),
    "assign": "a stream has one partition: say 'stream'",
    "topic": "say 'stream'",
    "startingOffsetsByTimestampStrategy": (
        "a time that no event has reached is the end of the stream: leave it out"
    ),
    "kafkaConsumer.pollTimeoutMs": "say 'patience', how long servers that are away are waited for",
    "fetchOffset.numRetries": "say 'patience', how long servers that are away are waited for",
    "fetchOffset.retryIntervalMs": "say 'patience', how long servers that are away are waited for",
    "groupIdPrefix": "readers have no groups, each query's checkpoint says how far it is: leave it out",
    "kafka.group.id": "readers have no groups, each query's checkpoint says how far it is: leave it out",
    "includeHeaders": "the column 'attributes' is always there: leave it out",
    "kafka.bootstrap.servers": "say 'url', as qanat://host:7411",
}
"""Options of Kafka's that mean nothing here, and what says it."""


class KafkaOption(LocalError):
    """An option of Spark's Kafka source that has no meaning here, or a value that it cannot have."""

    exit_code = 2


def translated(options: Mapping[str, str]) -> dict[str, str]:
    """All options, in lower case, with Kafka's as those of the format; what it gives it gives back. Raises
    `KafkaOption`."""
    given = {name.lower(): value for name, value in options.items()}
    for name, words in _WORDS.items():
        if name.lower() in given:
            raise KafkaOption(f"option {name!r} is of Spark's Kafka source: {words}")
    for name in given:
        if name.startswith("kafka."):
            raise KafkaOption(
                f"option {name!r} is a setting of Kafka's own clients, of which there are none: leave it out"
            )
    made: dict[str, tuple[str, str]] = {}
    for name, (ours, read) in _READ.items():
        if name.lower() not in given:
            continue
        if ours in given or ours in made:
            other = made[ours][0] if ours in made else ours
            raise KafkaOption(f"options {other!r} and {name!r} say the same: give one of them")
        made[ours] = name, read(name, given.pop(name.lower()).strip())
    return given | {ours: value for ours, (_, value) in made.items()}


def _as_it_is(name: str, text: str) -> str:
    return text


def _losses(name: str, text: str) -> str:
    if text.lower() not in ("true", "false"):
        raise KafkaOption(f"option {name!r} is true or false, not {text!r}")
    return "stop" if text.lower() == "true" else "skip"


def _start(name: str, text: str) -> str:
    if not text.startswith("{"):
        if text.lower() not in ("earliest", "latest"):
            raise _bad(name, text)
        return text
    # There is no number 0 here: what Kafka calls its first offset is ours with the number 1.
    special = {EARLIEST: "earliest", LATEST: "latest"}
    return _each(name, text, lambda number: special.get(number) or str(max(number, 1)))


def _end(name: str, text: str) -> str:
    """Kafka's end is the first that is not read, ours the last that is."""
    if not text.startswith("{"):
        if text.lower() != "latest":
            raise _bad(name, text)
        return ""

    def before(number: int) -> str:
        if number == EARLIEST:
            raise KafkaOption(f"option {name!r}: nothing ends at the earliest event; -1 is the latest")
        return "latest" if number == LATEST else str(max(number - 1, 0))

    return _each(name, text, before)


def _time(name: str, text: str) -> str:
    if not text.isdecimal():
        raise KafkaOption(f"option {name!r} is a number of milliseconds since 1970, not {text!r}")
    return _iso(name, int(text))


def _times(name: str, text: str) -> str:
    return _each(name, text, lambda number: _iso(name, number))


def _iso(name: str, milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        raise KafkaOption(f"option {name!r}: {milliseconds} ms since 1970 is no time that there is") from None


def _each(name: str, text: str, made: Callable[[int], str]) -> str:
    """`{"orders": {"0": 23}}` as `{"orders": "23"}`."""
    try:
        given: Any = json.loads(text)
    except ValueError:
        raise _bad(name, text) from None
    if not isinstance(given, dict):
        raise _bad(name, text)
    found = {}
    for stream, partitions in given.items():
        if not isinstance(partitions, dict) or list(partitions) != ["0"]:
            raise KafkaOption(
                f'option {name!r}: a stream has one partition, so write {{"{stream}": {{"0": …}}}}, not'
                f" {json.dumps(partitions)}"
            )
        number = partitions["0"]
        if isinstance(number, bool) or not isinstance(number, int) or number < EARLIEST:
            raise KafkaOption(f"option {name!r}: {json.dumps(number)} of stream {stream!r} is no offset")
        found[stream] = made(number)
    return json.dumps(found)


def _bad(name: str, text: str) -> KafkaOption:
    words = "latest" if "ending" in name else "earliest, latest"
    words = "" if "timestamp" in name else f"{words} or "
    return KafkaOption(f'option {name!r} is {words}JSON as {{"orders": {{"0": 23}}}}, not {text!r}')


_READ: dict[str, tuple[str, Callable[[str, str], str]]] = {
    "subscribe": ("stream", _as_it_is),
    "subscribePattern": ("pattern", _as_it_is),
    "startingOffsets": ("start", _start),
    "endingOffsets": ("end", _end),
    "startingTimestamp": ("start", _time),
    "endingTimestamp": ("end", _time),
    "startingOffsetsByTimestamp": ("start", _times),
    "endingOffsetsByTimestamp": ("end", _times),
    "maxOffsetsPerTrigger": ("maxrowspertrigger", _as_it_is),
    "failOnDataLoss": ("losses", _losses),
}
