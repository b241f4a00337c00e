"""Whether a server is set up so that its log can be read, and the statement that makes it so."""

from collections.abc import Mapping
from typing import Any

from qanat.capture.errors import NotSetUp
from qanat.capture.mariadb.connection import Server, Session
from qanat.capture.mariadb.decode_events import parse_gtids
from qanat.capture.mariadb.rights import Rights, grant_log, grant_select, rights
from qanat.capture.url import Finding, LogUrl
from qanat.events.errors import QanatError


def findings(session: Session) -> list[Finding]:
    """What a reader needs; each that is not there keeps it from starting."""
    setting = dict(session.query("SHOW GLOBAL VARIABLES WHERE Variable_name IN "
        "('log_bin', 'binlog_format', 'binlog_row_image', 'server_id', 'version')"))  # fmt: skip
    if "MariaDB" not in setting.get("version", ""):
        return [
            Finding(
                False,
                f"the server is {setting.get('version')}, not MariaDB",
                "read MySQL's own log with another reader",
            )
        ]
    found = [
        Finding(
            setting["log_bin"] == "ON",
            f"log_bin is {setting['log_bin']}",
            "write log_bin=mariadb-bin under [mariadbd] in the server's configuration, and restart it",
        ),
        Finding(
            setting["binlog_format"] == "ROW",
            f"binlog_format is {setting['binlog_format']}",
            "SET GLOBAL binlog_format=ROW, and binlog_format=ROW in the configuration; sessions that are open"
            " keep the old one",
        ),
        Finding(
            setting["binlog_row_image"] == "FULL",
            f"binlog_row_image is {setting['binlog_row_image']}",
            "SET GLOBAL binlog_row_image=FULL, and binlog_row_image=FULL in the configuration",
        ),
        Finding(
            setting["server_id"] != "0",
            f"server_id is {setting['server_id']}",
            "SET GLOBAL server_id=1 (another one on each server), and server_id=1 in the configuration",
        ),
    ]
    return [*found, _log_rights(_rights(session))]


def _rights(session: Session) -> Rights:
    return rights(session.account(), [str(row[0]) for row in session.query("SHOW GRANTS")])


def _log_rights(held: Rights) -> Finding:
    missing = held.missing()
    what = f"{held.account} has not the rights {' and '.join(missing)}" if missing else "the rights are there"
    return Finding(not missing, what, grant_log(held.account))


def _select_right(held: Rights, database: str) -> Finding:
    """The log has its rows whoever may read the tables."""
    may, where = held.selects(database), f"the database {database}" if database else "all databases"
    what = f"{held.account} may {'' if may else 'not '}read the tables of {where}"
    use = "needed for --from snapshot, and to name columns while binlog_row_metadata is not FULL"
    use += f"; without any right on {database} it is not even seen whether it is there" if database else ""
    return Finding(may, what if may else f"{what}: {use}", grant_select(held.account, database), needed=False)


def _database(session: Session, held: Rights, name: str) -> list[Finding]:
    """If one is named. A log has what is committed to any, so a wrong name is not noticed by reading."""
    if not name or not held.selects(name):
        return []
    there = bool(session.query("SELECT 1 FROM information_schema.schemata WHERE schema_name = %s", (name,)))
    what = f"the database {name} is there" if there else f"there is no database {name!r}"
    return [Finding(there, what, "correct its name in the URL, or make it")]


def advice(session: Session) -> list[Finding]:
    """What a reader can do without, at a cost that is said."""
    setting = dict(
        session.query(
            "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('binlog_row_metadata', 'gtid_strict_mode',"
            " 'binlog_checksum', 'log_slave_updates', 'expire_logs_days', 'gtid_binlog_state')"
        )
    )
    metadata = setting.get("binlog_row_metadata", "NO_LOG")
    domains = sorted({gtid.domain for gtid in parse_gtids(setting.get("gtid_binlog_state", ""))})
    named = ", ".join(map(str, domains))
    found = [
        Finding(
            metadata == "FULL",
            f"binlog_row_metadata is {metadata}"
            + (
                ""
                if metadata == "FULL"
                else ": the log does not name columns, and rows from before an ALTER TABLE are refused"
            ),
            "SET GLOBAL binlog_row_metadata=FULL, and binlog_row_metadata=FULL in the configuration",
        ),
        Finding(
            setting.get("gtid_strict_mode") == "ON",
            f"gtid_strict_mode is {setting.get('gtid_strict_mode')}",
            "SET GLOBAL gtid_strict_mode=ON keeps GTIDs in order on every replica",
        ),
        Finding(
            setting.get("binlog_checksum") == "CRC32",
            f"binlog_checksum is {setting.get('binlog_checksum')}",
            "SET GLOBAL binlog_checksum=CRC32 lets a damaged log be noticed",
        ),
        Finding(
            len(domains) <= 1,
            f"the log has the GTID domains {named}" if domains else "the log has no GTID yet",
            "read each domain with a reader of its own, with the option domain=",
        ),
    ]
    return [finding._replace(needed=False) for finding in found]


def refuse_unsound(session: Session) -> None:
    """With all that is wrong at once: whoever puts one thing right is not to find the next by trying
    again."""
    wrong = [finding for finding in findings(session) if finding.wrong]
    if wrong:
        told = "; ".join(f"{finding.what} ({finding.fix})" for finding in wrong)
        raise NotSetUp(f"the log of {session.server} cannot be read: {told}")


def check(url: LogUrl, options: Mapping[str, Any]) -> list[Finding]:
    server = Server.of(url, options)
    try:
        session = server.connect()
    except QanatError as error:
        return [Finding(False, str(error))]
    try:
        found = findings(session)
        if len(found) > 1:  # it is a MariaDB
            held = _rights(session)
            found += [_select_right(held, url.name), *_database(session, held, url.name), *advice(session)]
        return [finding._replace(fix="") if finding.ok else finding for finding in found]
    finally:
        session.close()
