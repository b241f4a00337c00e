"""Every setting of a node, section by section; `docs/configuration.md` is written from these structs."""

from typing import Annotated, Literal

import msgspec

from qanat.runtime.settings import TransportSettings, setting


class NodeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name of this process, its address and its data folder."""

    name: Annotated[
        str,
        setting(
            "Name of this node, unique within the cluster.", why="peers know each other by it", min_length=1
        ),
    ] = "local/server-1"
    cluster: Annotated[
        str,
        setting(
            "Name of the cluster; peers of other clusters are refused.",
            why="a test client with a wrong address cannot reach production",
            min_length=1,
        ),
    ] = "qanat"
    listen: Annotated[
        str,
        setting(
            "Address for peers and clients, host:port; port 0 takes any free one.",
            why="loopback: nothing is open to the network until you change this",
        ),
    ] = "127.0.0.1:7411"
    advertise: Annotated[
        str,
        setting(
            "Address that clients are told to use, host:port; empty: `listen`.",
            why="the two differ only behind 0.0.0.0 or a translated address",
        ),
    ] = ""
    data: Annotated[
        str,
        setting(
            "Folder for all data on disk.",
            why="in the working directory: easy to find and to remove",
        ),
    ] = "qanat-data"
    stop_ms: Annotated[
        int,
        setting(
            "Time for a graceful stop; after it the process ends anyway.",
            unit="ms",
            why="below the 10 s that service managers wait before they kill",
            ge=0,
            reload=True,
        ),
    ] = 8_000


class AdminSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """HTTP for operators: /healthz, /metrics, /status."""

    enabled: Annotated[
        bool, setting("Whether to serve HTTP for operators.", why="operators need a view into a node")
    ] = True
    host: Annotated[
        str,
        setting("Address for HTTP.", why="reads need no password: this machine only, unless you change this"),
    ] = "127.0.0.1"
    port: Annotated[
        int,
        setting("Port for HTTP; 0 takes any free one.", why="next to the node's own 7411", ge=0, le=65535),
    ] = 7412
    request_ms: Annotated[
        int,
        setting(
            "Time for a whole request to arrive.",
            unit="ms",
            why="a slow client holds its socket no longer",
            ge=1,
        ),
    ] = 5_000


class LoggingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Log lines on standard error."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        setting(
            "Lowest level that is written.",
            why="one line for each event that an operator may act on",
            reload=True,
        ),
    ] = "info"
    format: Annotated[
        Literal["text", "json"],
        setting(
            "`text` is key=value for people, `json` one object per line.",
            why="people read the log first",
            reload=True,
        ),
    ] = "text"


class MemorySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Memory of the whole process; docs/limits.md lists what happens near the limit."""

    budget_bytes: Annotated[
        int,
        setting(
            "Memory budget of the process, without mapped pages of logs; 0: half of the memory of"
            " the machine or its control group, three quarters up to 512 MiB.",
            unit="bytes",
            why="the other half is for other processes and for the page cache, from which logs are read",
            ge=0,
            reload=True,
        ),
    ] = 0


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of every kind of node, one section for each part."""

    node: NodeSettings = NodeSettings()
    transport: TransportSettings = TransportSettings()
    memory: MemorySettings = MemorySettings()
    admin: AdminSettings = AdminSettings()
    logging: LoggingSettings = LoggingSettings()
