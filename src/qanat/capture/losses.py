"""What a log no longer had, said in the stream that is fed from it: a subscriber hears of it in its place in
the order (Wormhole's `onDataLoss`)."""

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from qanat.capture.events import COLUMNS, Events
from qanat.capture.json_text import encode
from qanat.capture.reader import Lost
from qanat.events.batch import Batch

LOST = "lost"
"""The `#op` of such an event."""


class _Loss(msgspec.Struct):
    after: str
    upto: str
    reason: str


class _Payload(msgspec.Struct):
    lost: _Loss


_decode = msgspec.json.Decoder(_Payload).decode


def loss_line(lost: Lost) -> bytes:
    """`{"lost":{"after":"7:0","upto":"9:3","reason":"…"}}`"""
    return encode({"lost": {"after": str(lost.after), "upto": str(lost.upto), "reason": lost.reason}})


def loss_event(lost: Lost) -> Events:
    """The event that says so; it has the position of the last update that is missing."""
    return Events(
        pa.array([loss_line(lost)], pa.binary()),
        pa.array([b""], pa.binary()),
        {"#op": [pa.array([LOST])]},
        np.array([lost.upto.sequence], np.uint64),
        np.array([lost.upto.index], np.uint32),
    )


def is_loss(batch: Batch) -> npt.NDArray[np.bool_]:
    """Which events say that something is missing before them."""
    hits = np.zeros(batch.count, bool)
    attributes: dict[str, list[Any]] = batch.attributes()
    for values in attributes.get("#op", []):
        plain = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
        if pa.types.is_string(plain.type):
            hits |= np.asarray(pc.fill_null(pc.equal(plain, LOST), False))
    for values in attributes.get(COLUMNS, []):  # updates may stand beside it in a batch
        hits &= np.asarray(values.is_null())
    return hits


def loss_of(payload: bytes) -> str:
    """Such an event as a sentence."""
    try:
        lost = _decode(payload).lost
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "the log that the stream is fed from had lost updates"
    return (
        f"the log that the stream is fed from had lost what is after {lost.after} and up to {lost.upto}:"
        f" {lost.reason}"
    )
