"""What a replica lets its clients have: publishes at the head, events at the tail, and who is told what
instead."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from qanat.events.batch import Batch, stream_id
from qanat.events.errors import LocalError
from qanat.log import LogConfig
from qanat.log.config import Policy
from qanat.log.disk import OsDisk
from qanat.protocols.chain import Placed
from qanat.replica.settings import StreamSettings
from qanat.replica.streams import RegionStreams
from qanat.replica.tickets import Tickets
from qanat.serving.log_history import LogHistory
from qanat.serving.refusals import NoStream, NotHead, NotTail, OwnedElsewhere

OURS, FAR = StreamSettings(owner="eu"), StreamSettings(owner="us")
HEAD = Placed(3, "eu/proxy-1", "eu/proxy-2", True, False)
TAIL = Placed(4, "eu/proxy-2", "eu/proxy-1", False, True)


@pytest.fixture
def there(tmp_path: Path) -> Callable[[Callable[[RegionStreams, LogHistory], None]], None]:
    def run(work: Callable[[RegionStreams, LogHistory], None]) -> None:
        async def main() -> None:
            configured: dict[int, LogConfig] = {}
            history = LogHistory(OsDisk(), str(tmp_path), lambda stream: configured.get(stream, LogConfig()))
            streams = RegionStreams("eu", history, Tickets(lambda publish: None, 10))
            configure = streams.configure

            def remember(named: dict[str, StreamSettings]) -> list[str]:
                configured.update({stream_id(name): settings for name, settings in named.items()})
                return configure(named)

            streams.configure = remember  # type: ignore[assignment, method-assign]
            streams.configure({"ours": OURS, "far": FAR})
            work(streams, history)
            history.close()

        asyncio.run(main())

    return run


Run = Callable[[Callable[[RegionStreams, LogHistory], None]], None]


def test_publishes_at_the_head_of_the_owner(there: Run) -> None:
    def work(streams: RegionStreams, history: LogHistory) -> None:
        with pytest.raises(NotHead, match="nobody"):
            streams.to_publish("ours", True, "")
        streams.on_placed(HEAD)
        assert streams.to_publish("ours", True, "").name == "ours"
        assert list(streams.by_id) == [stream_id("ours")]
        with pytest.raises(OwnedElsewhere, match="'us'"):
            streams.to_publish("far", True, "")
        with pytest.raises(NoStream, match="apply"):
            streams.to_publish("none", True, "")
        assert isinstance(streams.missing(stream_id("far")), OwnedElsewhere)
        assert isinstance(streams.missing(1), NoStream)
        streams.on_placed(TAIL)
        with pytest.raises(NotHead, match="eu/proxy-2"):
            streams.to_publish("ours", True, "")
        assert not streams.by_id and isinstance(streams.missing(stream_id("ours")), NotHead)

    there(work)


def test_events_at_a_tail_that_may_serve(there: Run) -> None:
    def work(streams: RegionStreams, history: LogHistory) -> None:
        streams.on_placed(TAIL)
        with pytest.raises(NotTail, match="may not serve"):
            streams.to_read("far")
        streams.show(True)
        assert streams.to_read("far").name == "far"
        streams.on_placed(HEAD)
        with pytest.raises(NotTail, match="eu/proxy-2"):
            streams.to_read("far")

    there(work)


def test_streams_come_and_go(there: Run) -> None:
    def work(streams: RegionStreams, history: LogHistory) -> None:
        early = Batch.build(stream_id("new"), [b"came before it was named here"], first=1)
        history.append_numbered(early)
        kept = StreamSettings(owner="us", policy=Policy(by_key=True))
        streams.configure({"ours": OURS, "new": kept})
        assert "far" not in streams.streams and history.counter(stream_id("far")) == 0
        assert streams.owners == {stream_id("ours"): "eu", stream_id("new"): "us"}
        assert streams.all[stream_id("new")].log.config == kept
        assert streams.all[stream_id("new")].log is history.logs[stream_id("new")]
        assert history.counter(stream_id("new")) == 1
        assert streams.configure({"ours": OURS, "new": StreamSettings(owner="us")}) == ["new"]

    there(work)


def test_two_names_of_one_number_are_refused(there: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(streams: RegionStreams, history: LogHistory) -> None:
        monkeypatch.setattr("qanat.replica.streams.stream_id", lambda name: stream_id("ours"))
        with pytest.raises(LocalError, match="same identifier"):
            streams.configure({"ours": OURS, "twin": OURS})

    there(work)
