"""Small files made into large ones, without changing a row."""

from collections.abc import Iterator, Sequence

from qanat.pipeline.archive.errors import Superseded
from qanat.pipeline.archive.history import History, Writer
from qanat.pipeline.archive.manifest import DataFile, Manifest
from qanat.pipeline.archive.settings import ArchiveSettings
from qanat.pipeline.archive.tables import Tables


def groups_of(files: Sequence[DataFile], file_bytes: int) -> list[list[DataFile]]:
    """Runs of adjacent files of one day that are each less than half of what a file should be, and together
    not more."""
    groups: list[list[DataFile]] = []
    current: list[DataFile] = []

    def close() -> None:
        if len(current) > 1:
            groups.append(list(current))
        current.clear()

    for file in files:
        follows = current and current[-1].last + 1 == file.first and current[-1].day == file.day
        if not follows or sum(f.bytes for f in current) + file.bytes > file_bytes:
            close()
        if file.bytes * 2 < file_bytes:
            current.append(file)
        else:
            close()
    close()
    return groups


def tidy(tables: Tables, history: History, settings: ArchiveSettings) -> Iterator[list[DataFile]]:
    """Merges all small files, each group a commit; yields what each made."""
    with history.begin("rewrite") as writer:
        for group in groups_of(writer.manifest.files, settings.file_bytes):
            yield merge(tables, writer, group)


def tidy_end(tables: Tables, writer: Writer, settings: ArchiveSettings) -> Manifest:
    """What the writer that appends does: merges the small files that are not being rewritten, once there are
    many."""
    manifest = writer.manifest
    files = [file for file in manifest.files if file.first > manifest.claim]
    for group in groups_of(files, settings.file_bytes):
        if len(group) >= settings.small_files:
            try:
                merge(tables, writer, group)
            except Superseded:
                break  # somebody rewrites them just now
    return writer.manifest


def merge(tables: Tables, writer: Writer, group: Sequence[DataFile]) -> list[DataFile]:
    """One file in the place of several."""
    new = tables.merge(writer, group)
    writer.replace([file.path for file in group], new)
    return new
