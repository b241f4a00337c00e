"""Who tolerates staleness gets many updates together, and compressed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.publishing import KEPT, QUICK, nursery
from tests.servers.rocksdb import rocks_process
from tests.waiting import wait_until

pytestmark = pytest.mark.paper("W12")
ROWS = 2_000


@pytest.mark.parametrize(("lines", "compressed"), [("tolerates_ms = 200.0", True), ("", False)])
def test_what_is_sent_to_one_that_tolerates_staleness_is_much_less_than_what_it_gets(
    tmp_path: Path, lines: str, compressed: bool
) -> None:
    """Bytes on sockets and in shared memory, beside those of the updates that were sent."""
    with nursery(tmp_path) as home, rocks_process(tmp_path / "shop", **KEPT) as rocks:
        rocks.do("write", [[("put", "default", b"%06d" % row, b"all alike " * 40)] for row in range(ROWS)])
        publisher = home.node(
            "publisher",
            "publisher",
            f'[log]\nurl = "{rocks.url}?dataset=shop"\nsharding = "hash:8"\n{QUICK}'
            f'[applications.cache]\nstart = "earliest"\n{lines}\n',
        )
        home.subscriber("cache", [publisher.url])
        wait_until(lambda: len({one.key for one in home.updates("cache")}) == ROWS, say=publisher.status)
        sent = publisher.metric("application_sent_bytes_total")
        carried = sum(publisher.metric(f"transport_{name}_bytes_total") for name in ("sent", "placed"))
        assert sent > ROWS * 400
        assert (carried < 0.3 * sent) is compressed, (carried, sent)
