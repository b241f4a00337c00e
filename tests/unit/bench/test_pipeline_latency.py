"""What the benchmark of latency makes of times: a mistake there would be a wrong figure that looks right."""

import numpy as np
import pytest

from qanat.bench.pipeline_latency import columns_of, stages
from qanat.events.batch import Batch, stream_id

SECOND_NS = 1_700_000_000_000_000_000


def key(text: bytes) -> bytes:
    return b"default/" + text.hex().encode()


def test_an_event_tells_when_it_was_written_and_where() -> None:
    keys = [key(b"begin"), *(key(b"%019d" % (SECOND_NS + i * 1_000_000)) for i in range(3))]
    batch = Batch.build(
        stream_id("updates"),
        [b""] * 4,
        keys=keys,
        times=np.arange(4) + 10,
        source="log",
        positions=(np.arange(4), np.zeros(4)),
    )
    columns = columns_of(batch, 99)
    assert columns["written_us"].tolist() == [SECOND_NS // 1000 + i * 1000 for i in range(3)]
    assert columns["published_us"].tolist() == [11, 12, 13]
    assert columns["place"].tolist() == [1, 2, 3]
    assert columns["had_us"].tolist() == [99] * 3


def test_the_stages_add_up_and_belong_to_the_micro_batch_that_an_update_is_in() -> None:
    columns = {
        "written_us": np.array([0, 1_000, 5_000]),
        "place": np.array([1, 2, 3]),
        "published_us": np.array([4_000, 4_000, 9_000]),
        "had_us": np.array([5_000, 5_000, 11_000]),
    }
    planned = np.array([2, 3, 7]), np.array([2_000, 6_000, 10_000])
    figures = stages(columns, planned)
    assert figures["latency_capture_ms"] == pytest.approx((2 + 1 + 1) / 3)
    assert figures["latency_batch_ms"] == pytest.approx((2 + 2 + 3) / 3)
    assert figures["latency_publish_ms"] == pytest.approx((1 + 1 + 2) / 3)
    assert figures["latency_ms_p50"] == pytest.approx(5)
