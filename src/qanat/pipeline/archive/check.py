"""Whether an archive is still what was written: every file there, its bytes unchanged, its footer as the manifest says."""

from collections.abc import Iterator

from qanat.pipeline.archive.errors import ArchiveDamaged
from qanat.pipeline.archive.footer import read_footer
from qanat.pipeline.archive.history import History
from qanat.pipeline.archive.manifest import DataFile
from qanat.pipeline.archive.storage import Storage


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
