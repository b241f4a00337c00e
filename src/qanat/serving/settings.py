"""Settings of a stream server beyond those of every node: its streams and their logs."""

from typing import Annotated

import msgspec

from qanat.log.config import LogConfig
from qanat.protocols.mesh import MeshConfig
from qanat.protocols.views import ViewsConfig
from qanat.runtime.node_settings import Settings
from qanat.runtime.settings import setting
from qanat.serving.caravan_settings import CARAVANS, CaravansConfig


class StreamsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The streams of a server."""

    max_streams: Annotated[
        int,
        setting(
            "Most streams; further ones are refused.",
            why=(
                "a stream costs an open file and its newest bytes in memory; Sprinkler supports few"
                " streams per region"
            ),
            ge=1,
            reload=True,
        ),
    ] = 1_000
    collect_ms: Annotated[
        int,
        setting(
            "Pause between two rounds of garbage collection.",
            unit="ms",
            why="rewriting is bulk work: rare enough to be invisible, often enough to keep the disk flat",
            ge=10,
            reload=True,
        ),
    ] = 1_000


class StreamServerSettings(Settings, frozen=True, forbid_unknown_fields=True):
    """All settings of a stream server. `[log]` is for streams without a section of their own."""

    log: LogConfig = LogConfig()
    mesh: MeshConfig = MeshConfig()
    views: ViewsConfig = ViewsConfig()
    streams: StreamsSettings = StreamsSettings()
    caravans: Annotated[CaravansConfig, CARAVANS] = CaravansConfig()
    stream: Annotated[
        dict[str, LogConfig],
        setting(
            "Settings of single streams by name, with the keys of `[log]`: `[stream.prices]`, then"
            " `mode`, `policy`, …",
            reload=True,
        ),
    ] = msgspec.field(default_factory=dict)
