"""What an account may do, as the server lists it, and the statement that gives it what it lacks."""

import re
from collections.abc import Sequence
from typing import NamedTuple

LOG = {
    "REPLICATION SLAVE": ("REPLICATION SLAVE",),
    "BINLOG MONITOR": ("BINLOG MONITOR", "REPLICATION CLIENT"),
}
"""What reading the log takes, and by which names the server lists it."""

_LINE = re.compile(r"GRANT (.+?) ON (\*|`(?:[^`]|``)+`)\.\* TO ")
_ALL = "ALL PRIVILEGES"


class Rights(NamedTuple):
    """Those of whole databases; the rights on single tables are left out."""

    account: str
    """As GRANT names it: the host that stands in it may be another than the one that we come from."""
    everywhere: frozenset[str]
    databases: tuple[tuple[str, frozenset[str]], ...]
    """By the pattern of the database's name."""

    def missing(self) -> list[str]:
        """Of what reading the log takes."""
        if _ALL in self.everywhere:
            return []
        return [name for name, same in LOG.items() if not self.everywhere.intersection(same)]

    def selects(self, database: str) -> bool:
        """Whether all tables of a database may be read; of every database, if none is named."""
        held = [self.everywhere]
        held += [rights for pattern, rights in self.databases if database and _like(pattern, database)]
        return any(rights & {_ALL, "SELECT"} for rights in held)


def rights(account: str, lines: Sequence[str]) -> Rights:
    """From the lines of SHOW GRANTS."""
    everywhere: set[str] = set()
    databases = []
    for line in lines:
        found = _LINE.match(line)
        if found is None:
            continue
        privileges, where = frozenset(found[1].upper().split(", ")), found[2]
        if where == "*":
            everywhere |= privileges
        else:
            databases.append((where[1:-1].replace("``", "`"), privileges))
    return Rights(account, frozenset(everywhere), tuple(databases))


def account_of(current_user: str) -> str:
    """What CURRENT_USER() gives, quoted."""
    name, _, host = current_user.rpartition("@")
    return f"{quoted(name)}@{quoted(host)}"


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def grant_log(account: str) -> str:
    return f"GRANT {', '.join(LOG)} ON *.* TO {account}"


def grant_select(account: str, database: str) -> str:
    return f"GRANT SELECT ON {_pattern(database) if database else '*'}.* TO {account}"


def _pattern(database: str) -> str:
    """GRANT takes `_` and `%` for wildcards."""
    return quoted(re.sub(r"([_%\\])", r"\\\1", database))


def _like(pattern: str, name: str) -> bool:
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    wild = {"%": ".*", "_": "."}
    text = "".join(wild.get(part) or re.escape(part.removeprefix("\\")) for part in parts)
    return re.fullmatch(text, name, re.DOTALL) is not None
