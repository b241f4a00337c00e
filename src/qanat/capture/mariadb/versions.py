"""Versions of tables: how their rows are laid out, and the table that updates say they are of."""

from dataclasses import dataclass, replace

from qanat.capture.mariadb.decode_rows import Layout
from qanat.capture.mariadb.decode_table import TableMap
from qanat.capture.table import Column, Table


@dataclass(frozen=True, slots=True, eq=False)
class Version:
    """One object for all table maps that say the same, so that rows are grouped by identity."""

    table: Table
    layout: Layout


class Versions:
    """The versions seen so far, the least recently made forgotten first."""

    LIMIT = 10_000

    def __init__(self) -> None:
        self._known: dict[TableMap, Version] = {}

    def of(self, described: TableMap) -> Version:
        same = replace(described, id=0)
        version = self._known.get(same)
        if version is None:
            columns = tuple(
                Column(name, kind.arrow, kind.name, at in described.keys)
                for at, (name, kind) in enumerate(zip(described.names, described.types, strict=True))
            )
            version = Version(Table(described.database, "", described.name, columns), Layout(described.types))
            if len(self._known) >= self.LIMIT:
                self._known.pop(next(iter(self._known)))
            self._known[same] = version
        return version

    def without_columns(self, database: str, name: str) -> Version:
        """For what happened to a table and not to its rows. What its columns were is not said: a reader that
        was resumed may not know."""
        return self.of(TableMap(0, database, name, ()))
