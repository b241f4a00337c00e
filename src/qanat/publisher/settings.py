"""What a publisher can be told: its log, its applications, and who else has copies of the dataset."""

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
    """The log that is published."""

    url: Annotated[
        str,
        setting(
            "The log, as `qanat changes` takes it: `mariadb://user@host/`, `rocksdb:///folder`,"
            " `file:///folder`, …"
        ),
    ] = ""
    sharding: Annotated[
        str,
        setting(
            "What the shard of an update is: a column's name, `hash:64` of the primary key, or the producer's"
            " own `#S` if empty.",
            why="only the producer knows what belongs together",
        ),
    ] = ""
    chunk_bytes: Annotated[
        int,
        setting(
            "Largest batch that is sent; what one read brings is cut into such.",
            unit="bytes",
            why=(
                "some fit into a subscriber's window, and each is large enough that handing it over costs"
                " nothing"
            ),
            ge=1024,
            le=8 << 20,
        ),
    ] = 4 << 20
    archive: Annotated[
        str,
        setting(
            "Folder of an archive (`qanat archive run`) that has what the log no longer has; empty: there is"
            " none.",
            why="a log is kept for days, and an application may be further behind, or new",
        ),
    ] = ""
    archived_as: Annotated[
        str,
        setting(
            "The stream in that archive which is fed with this whole log (`qanat changes --into`, `qanat"
            " pipeline`), under the same dataset name.",
        ),
    ] = ""

    def __post_init__(self) -> None:
        if bool(self.archive) != bool(self.archived_as):
            raise ValueError("archive and archived_as go together: the folder, and the stream in it")


class CopySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The coordinator through which publishers of copies of the dataset agree; without one there is one
    copy."""

    name: Annotated[
        str,
        setting(
            "Its node.name, if it is an embedded one (of an ensemble of three, what is before `-1`, `-2`,"
            " `-3`); without name and url datamarkers are kept here."
        ),
    ] = ""
    url: Annotated[
        str,
        setting(
            "Where it is: `qanat://host:port`, the three of an ensemble"
            " `qanat://host:port,host:port,host:port`, or `zookeeper://host:port,host:port/root`."
        ),
    ] = ""

    def __post_init__(self) -> None:
        """With one of the two alone, each copy would serve every application by itself."""
        if self.url and not coordinator_name(self.name, self.url):
            raise ValueError("url is of an embedded coordinator: set name to its node.name as well")
        if self.name and not self.url:
            raise ValueError("there is a name: set url to where it is, as qanat://host:7410")
        if self.url:
            check_coordinator(self.name, self.url)


class MonitorSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the machines' monitors (`qanat publisher keep`) run it."""

    enabled: Annotated[
        bool, setting("Whether they run it at all.", why="to take it away everywhere, and keep its file")
    ] = True
    hosts: Annotated[
        tuple[str, ...],
        setting(
            "Names of the machines; none: each that has the file.", why="one set of files fits all machines"
        ),
    ] = ()


class ApplicationSettings(ApplicationConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An application: what it wants of the log, from where on, and how soon."""

    compression: Literal["auto", "", "lz4", "zstd"] = "auto"
    """Codec of what is sent to it; `auto` is zstd for who tolerates staleness, and none for others: within
    one place a link is faster than a codec."""

    @property
    def codec(self) -> str:
        if self.compression == "auto":
            return "zstd" if self.tolerates_ms else ""
        return self.compression


class PublisherNodeSettings(NodeSettings, frozen=True, forbid_unknown_fields=True):
    """Apart from a `qanat serve` on the same machine: neither its port nor its folder."""

    listen: Annotated[
        str,
        setting(
            "Address for applications, host:port; port 0 takes any free one.",
            why="loopback, and ten above a server of streams, which may run beside it",
        ),
    ] = f"127.0.0.1:{PUBLISHER_PORT}"
    data: Annotated[
        str, setting("Folder for everything kept on disk.", why="another than that of a server beside it")
    ] = "qanat-publisher"


class PublisherAdminSettings(AdminSettings, frozen=True, forbid_unknown_fields=True):
    """HTTP for operators: /healthz, /metrics, /status, and the publisher's own pages."""

    port: Annotated[
        int, setting("Port; 0 takes any free one.", why="next to the publisher's own 7421", ge=0, le=65535)
    ] = PUBLISHER_PORT + 1


class PublisherSettings(Settings, frozen=True, forbid_unknown_fields=True):
    """All settings of a publisher."""

    node: PublisherNodeSettings = PublisherNodeSettings()
    admin: PublisherAdminSettings = PublisherAdminSettings()
    log: LogSettings = LogSettings()
    publisher: Annotated[
        PublisherConfig, setting("Everything here changes while it runs, but for `parts`.", reload=True)
    ] = PublisherConfig()
    applications: Annotated[
        dict[str, ApplicationSettings],
        setting("Who is served, by name: `[applications.cache]`, then `where`, `start`, …", reload=True),
    ] = msgspec.field(default_factory=dict)
    companies: Annotated[
        dict[str, tuple[str, ...]],
        setting(
            'Who travels together whatever the policy says, by a name: `night = ["index", "cache/7"]`,'
            " applications and shards.",
            why="none: the policy knows better; `qanat move` sets them while it runs",
            reload=True,
        ),
    ] = msgspec.field(default_factory=dict)
    coordinator: CopySettings = CopySettings()
    session: SessionConfig = SessionConfig()
    zookeeper: ZooKeeperAccess = ZooKeeperAccess()
    monitor: Annotated[MonitorSettings, setting("It is the monitor who reads it.", reload=True)] = (
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
                    f"applications: {name!r} begins with a snapshot, which is of tables, and log.url is of a"
                    " log alone; begin at earliest"
                )
            if not name.isprintable() or not 0 < len(name.encode()) <= 200 or "/" in name:
                raise ValueError(
                    f"applications: {name!r} is no name; at most 200 bytes that can be printed, without /"
                )
        seen: dict[str, str] = {}
        for company, members in self.companies.items():
            if not company:
                raise ValueError("companies: a company has a name")
            for member in members:
                if seen.setdefault(member, company) != company:
                    raise ValueError(
                        f"companies: {member!r} is in {seen[member]!r} and in {company!r}; it travels once"
                    )
