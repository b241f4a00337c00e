"""Settings of a publisher: its log, its applications, and the coordinator of copies of the dataset."""

from typing import Annotated, Literal

import msgspec

from qanat.capture.url import has_tables
from qanat.coordinate import SessionConfig
from qanat.coordinate.zookeeper import ZooKeeperAccess
from qanat.events.errors import LocalError
from qanat.protocols.publisher.balance import make_balance
from qanat.protocols.publisher.config import SNAPSHOT, ApplicationConfig, PublisherConfig
from qanat.protocols.publisher.policy import make_policy
from qanat.replica.coordination import check_coordinator, coordinator_name
from qanat.runtime.node_settings import AdminSettings, NodeSettings, Settings
from qanat.runtime.settings import setting
from qanat.runtime.url import PUBLISHER_PORT


class LogSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The log that the publisher reads."""

    url: Annotated[
        str,
        setting(
            "URL of the log, as for `qanat changes`: `mariadb://user@host/`, `rocksdb:///folder`,"
            " `file:///folder`, …"
        ),
    ] = ""
    sharding: Annotated[
        str,
        setting(
            "Shard of an update: a column's name, or `hash:64` of the primary key; empty: the"
            " producer's own column `#S`.",
            why="only the producer knows which updates belong together",
        ),
    ] = ""
    chunk_bytes: Annotated[
        int,
        setting(
            "Largest batch that is sent; a read is cut into batches of this size.",
            unit="bytes",
            why=("some fit into a subscriber's window, and each is large enough that its own cost vanishes"),
            ge=1024,
            le=8 << 20,
        ),
    ] = 4 << 20
    archive: Annotated[
        str,
        setting(
            "Folder of an archive (`qanat archive run`) with updates that the log has dropped;"
            " empty: no archive.",
            why="a log lasts for days, and an application may be further behind, or new",
        ),
    ] = ""
    archived_as: Annotated[
        str,
        setting(
            "Stream in that archive that has this whole log (`qanat changes --into`, `qanat"
            " pipeline`) under the same dataset name.",
        ),
    ] = ""

    def __post_init__(self) -> None:
        if bool(self.archive) != bool(self.archived_as):
            raise ValueError(
                "archive and archived_as go together: set the folder and the stream in it, or neither"
            )


class CopySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The coordinator of the publishers of copies of one dataset; without it there is one copy."""

    name: Annotated[
        str,
        setting(
            "The coordinator's node.name, unless it is ZooKeeper (of an ensemble of three, the part"
            " before `-1`, `-2`, `-3`). Without name and url the publisher keeps datamarkers in its"
            " own folder."
        ),
    ] = ""
    url: Annotated[
        str,
        setting(
            "Address of the coordinator: `qanat://host:port`, the three of an ensemble"
            " `qanat://host:port,host:port,host:port`, or `zookeeper://host:port,host:port/root`."
        ),
    ] = ""

    def __post_init__(self) -> None:
        """With one of the two alone, each copy would serve every application by itself."""
        if self.url and not coordinator_name(self.name, self.url):
            raise ValueError("url names an embedded coordinator: set name to its node.name as well")
        if self.name and not self.url:
            raise ValueError(
                "name is set and url is not: set url to the coordinator's address, as qanat://host:7410"
            )
        if self.url:
            check_coordinator(self.name, self.url)


class MonitorSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The machines on which monitors (`qanat publisher keep`) run this publisher."""

    enabled: Annotated[
        bool,
        setting("Whether monitors run this publisher.", why="false stops it everywhere and keeps its file"),
    ] = True
    hosts: Annotated[
        tuple[str, ...],
        setting(
            "Names of the machines; none: each machine with this file.",
            why="one set of files fits all machines",
        ),
    ] = ()


class ApplicationSettings(ApplicationConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An application: its filter, its starting point and its timing."""

    compression: Literal["auto", "", "lz4", "zstd"] = "auto"
    """Codec of the batches sent to it; `auto`: zstd with `tolerates_ms`, else none, because within one place
    a link is faster than a codec."""

    @property
    def codec(self) -> str:
        if self.compression == "auto":
            return "zstd" if self.tolerates_ms else ""
        return self.compression


class PublisherNodeSettings(NodeSettings, frozen=True, forbid_unknown_fields=True):
    """The publisher's name, address and data folder; the defaults differ from those of `qanat serve`."""

    listen: Annotated[
        str,
        setting(
            "Address for applications, host:port; port 0 takes any free one.",
            why="loopback, and ten above a stream server, which may run on the same machine",
        ),
    ] = f"127.0.0.1:{PUBLISHER_PORT}"
    data: Annotated[
        str,
        setting(
            "Folder for all data on disk.",
            why="apart from the folder of a stream server in the same directory",
        ),
    ] = "qanat-publisher"


class PublisherAdminSettings(AdminSettings, frozen=True, forbid_unknown_fields=True):
    """HTTP for operators: /healthz, /metrics, /status, and the publisher's own pages."""

    port: Annotated[
        int,
        setting(
            "Port for HTTP; 0 takes any free one.", why="next to the publisher's own 7421", ge=0, le=65535
        ),
    ] = PUBLISHER_PORT + 1


class PublisherSettings(Settings, frozen=True, forbid_unknown_fields=True):
    """All settings of a publisher."""

    node: PublisherNodeSettings = PublisherNodeSettings()
    admin: PublisherAdminSettings = PublisherAdminSettings()
    log: LogSettings = LogSettings()
    publisher: Annotated[
        PublisherConfig,
        setting("You can change this section while the publisher runs, except `parts`.", reload=True),
    ] = PublisherConfig()
    applications: Annotated[
        dict[str, ApplicationSettings],
        setting("Applications by name: `[applications.cache]`, then `where`, `start`, …", reload=True),
    ] = msgspec.field(default_factory=dict)
    companies: Annotated[
        dict[str, tuple[str, ...]],
        setting(
            'Flows that share a caravan whatever the policy says, by a name: `night = ["index", "cache/7"]`,'
            " applications and shards.",
            why="the policy usually knows better; `qanat move` sets companies while the publisher runs",
            reload=True,
        ),
    ] = msgspec.field(default_factory=dict)
    coordinator: CopySettings = CopySettings()
    session: SessionConfig = SessionConfig()
    zookeeper: ZooKeeperAccess = ZooKeeperAccess()
    monitor: Annotated[MonitorSettings, setting("Only the monitor reads this section.", reload=True)] = (
        MonitorSettings()
    )

    def __post_init__(self) -> None:
        try:
            make_policy(self.publisher)
            make_balance(self.publisher)
        except LocalError as error:
            raise ValueError(f"publisher: {error}") from None
        for name, application in self.applications.items():
            if application.start == SNAPSHOT and self.log.url and not has_tables(self.log.url):
                raise ValueError(
                    f"applications: {name!r} starts with a snapshot, but the log of log.url has no"
                    f" tables: set start to earliest"
                )
            if not name.isprintable() or not 0 < len(name.encode()) <= 200 or "/" in name:
                raise ValueError(
                    f"applications: {name!r} is no valid name: use at most 200 printable bytes without /"
                )
        seen: dict[str, str] = {}
        for company, members in self.companies.items():
            if not company:
                raise ValueError("companies: a company needs a name")
            for member in members:
                if seen.setdefault(member, company) != company:
                    raise ValueError(
                        f"companies: {member!r} is in {seen[member]!r} and in {company!r}: name it"
                        f" in one company"
                    )
