"""Whether an archive is still what was written: every file there, its bytes unchanged, its footer as the
manifest says."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from qanat.pipeline.archive.errors import ArchiveDamaged, TaskFailed
from qanat.pipeline.archive.footer import read_footer
from qanat.pipeline.archive.history import History
from qanat.pipeline.archive.manifest import DataFile
from qanat.pipeline.archive.storage import Storage
from qanat.pipeline.spark_texts import last_line, of_spark


def check_files(history: History) -> Iterator[tuple[DataFile, str]]:
    """Each file of the newest version with what is wrong with it; an empty text if nothing is."""
    for file in history.existing().files:
        yield file, wrong_with(history.storage, file)


def wrong_with(storage: Storage, file: DataFile) -> str:
    size = storage.size(file.path)
    if size is None:
        return "it is missing"
    if size != file.bytes:
        return f"it has {size} bytes and should have {file.bytes}"
    checksum = storage.checksum(file.path)
    if checksum != file.checksum:
        return f"its checksum is {checksum} and should be {file.checksum}"
    try:
        footer = read_footer(storage, file.path)
    except ArchiveDamaged as error:
        return str(error)
    if footer is None or (footer.rows, footer.max_seq) != (file.rows, file.last):
        return "its rows are not those that the manifest says"
    return ""


@contextmanager
def naming_damage(what: str, histories: Iterable[History]) -> Iterator[None]:
    """What Spark fails with over a damaged file becomes `ArchiveDamaged`, which names the file; over anything
    else, one sentence."""
    try:
        yield
    except Exception as error:
        if not of_spark(error):
            raise
        for history in histories:
            for file in history.newest().files:
                if wrong := wrong_with(history.storage, file):
                    raise ArchiveDamaged(
                        f"{history.storage.url(file.path)}, which holds {file.first} to {file.last}: {wrong};"
                        " restore it from a copy; `qanat archive check` lists all that is wrong"
                    ) from error
        raise TaskFailed(f"{what} failed on Spark: {last_line(str(error))}") from error
