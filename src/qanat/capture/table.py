"""What a table, or whatever holds rows in a datastore, looked like when a row was written."""

from dataclasses import dataclass, field

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Column:
    """`type` is how values are held here, without loss; `declared` how the datastore calls it, for people and
    for Debezium."""

    name: str
    type: pa.DataType
    declared: str = ""
    key: bool = False
    """Part of the primary key (or of the replica identity)."""


@dataclass(frozen=True, slots=True)
class Table:
    """One version of a table. Two versions with the same columns are equal, however often the table was
    altered between them."""

    database: str
    schema: str
    """Empty where the datastore has none between database and table."""
    name: str
    columns: tuple[Column, ...]
    arrow: pa.Schema = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        schema = pa.schema([pa.field(column.name, column.type) for column in self.columns])
        object.__setattr__(self, "arrow", schema)

    @property
    def path(self) -> str:
        """`database.schema.name`, without what is empty."""
        return ".".join(part for part in (self.database, self.schema, self.name) if part)

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns if column.key)
