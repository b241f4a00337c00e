"""The archive's manifest: what it accepts, what it says, how versions of it are committed."""

import threading
from pathlib import Path

import msgspec
import pytest

from qanat.events.errors import LocalError
from qanat.pipeline.archive.errors import ArchiveDamaged, Fenced, NoArchive, NotArchived, Superseded
from qanat.pipeline.archive.history import History
from qanat.pipeline.archive.layout import DataName, day_of, manifest_name, stream_folder, stream_of_folder
from qanat.pipeline.archive.manifest import Anchor, DataFile, Manifest, Range, decode, encode
from qanat.pipeline.archive.storage import LocalStorage, storage_of

pytestmark = pytest.mark.paper("D4")


def data_file(first: int, last: int, name: str = "") -> DataFile:
    return DataFile(
        path=name or f"day=2026-11-16/{first}-{last}.parquet",
        first=first,
        last=last,
        rows=last - first + 1,
        bytes=100,
        checksum="crc32c:00000000",
        min_time_us=0,
        max_time_us=0,
    )


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(LocalStorage(str(tmp_path)), "orders")


def test_a_manifest_survives_its_file_and_a_damaged_one_is_refused() -> None:
    manifest = Manifest(
        stream="s", version=3, files=(data_file(1, 9), data_file(12, 20)), lost=(Range(10, 11),)
    )
    data = encode(manifest)
    assert decode(data, "here") == manifest
    for broken in (b"", b"{}", data[:-1], data.replace(b'"first": 12', b'"first": 13'), b"x" + data):
        with pytest.raises(ArchiveDamaged, match="here"):
            decode(broken, "here")
    with pytest.raises(ArchiveDamaged, match="format '2'"):
        decode(data.replace(b"archive 1", b"archive 2"), "here")


def test_files_that_overlap_or_leave_a_hole_are_no_manifest() -> None:
    for files in (
        (data_file(1, 9), data_file(9, 12)),
        (data_file(1, 9), data_file(11, 12)),
        (data_file(5, 4),),
    ):
        with pytest.raises(ArchiveDamaged):
            Manifest(stream="s", files=files).check()


def test_complete_ranges_end_where_something_was_lost() -> None:
    manifest = Manifest(
        stream="s", files=(data_file(3, 5), data_file(6, 9), data_file(12, 20)), lost=(Range(10, 11),)
    )
    assert manifest.complete() == ((3, 9), (12, 20))
    assert (manifest.first, manifest.next) == (3, 21)
    assert [file.first for file in manifest.overlapping(9, 12)] == [6, 12]
    manifest.require(4, 9)
    with pytest.raises(NotArchived, match="lacks 10 to 11"):
        manifest.require(4, 12)
    with pytest.raises(NotArchived, match="3 to 9 and 12 to 20, not all of 15 to 21"):
        manifest.require(15, 21)


def test_names_of_folders_and_files_say_what_they_are() -> None:
    for stream in ("orders", "a/b=c", "50%", "übung", "x" * 255, "."):
        folder = stream_folder(stream)
        assert len(folder.encode()) <= 255 and "/" not in folder
        assert stream_of_folder(folder) == stream or len(stream) == 255
    assert stream_folder("y" * 255) != stream_folder("x" * 255)
    name = DataName(1, 500, "append", 3, 7)
    assert DataName.parse(name.path(day_of(0)).partition("/")[2]) == name
    assert name.path(day_of(86_400_000_000)).startswith("day=1970-01-02/")
    assert day_of(-1) == "1969-12-31"


def test_nothing_is_archived_until_something_is(history: History) -> None:
    assert history.newest().version == 0
    with pytest.raises(NoArchive, match="orders"):
        history.existing()


def test_appended_files_follow_on_from_each_other(history: History) -> None:
    writer = history.begin("append")
    writer.append([data_file(5, 9)], anchor=Anchor(9, "ab-cd"), identity="77")
    with pytest.raises(Superseded, match="goes on at 10"):
        writer.append([data_file(11, 12)])
    with pytest.raises(ArchiveDamaged, match="leave a hole"):
        writer.append([data_file(10, 12), data_file(14, 15)])
    manifest = writer.append([data_file(13, 15), data_file(10, 10)], lost=[Range(11, 12)])
    assert manifest == history.newest()
    assert manifest.complete() == ((5, 10), (13, 15))
    assert manifest.identity == "77" and manifest.next == 16


def test_a_writer_that_was_replaced_commits_nothing(history: History) -> None:
    old = history.begin("append")
    old.append([data_file(1, 5)])
    rewriter = history.begin("rewrite")
    new = history.begin("append")
    with pytest.raises(Fenced, match="append 2"):
        old.append([data_file(6, 9)])
    new.append([data_file(6, 8)])
    rewriter.replace([file.path for file in new.manifest.files], [data_file(1, 8, "day=1/whole")])
    assert [file.path for file in history.newest().files] == ["day=1/whole"]


def test_a_replacement_covers_what_was_there_and_finds_it_there(history: History) -> None:
    writer, rewriter = history.begin("append"), history.begin("rewrite")
    files = [data_file(1, 5), data_file(6, 9)]
    writer.append(files)
    with pytest.raises(Superseded, match="covers exactly"):
        rewriter.replace([files[0].path], [data_file(1, 4, "day=1/less")])
    manifest = rewriter.replace([file.path for file in files], [data_file(1, 9, "day=1/one")], collected=9)
    assert (manifest.generation, manifest.collected, manifest.files[0].generation) == (1, 9, 1)
    with pytest.raises(Superseded, match="not in version"):
        rewriter.replace([files[0].path], [data_file(1, 5, "day=1/again")])
    assert writer.append([data_file(10, 11)]).collected == 9


def test_who_appends_leaves_alone_what_a_rewriter_has_claimed(history: History) -> None:
    """Its merge may have begun before the claim: the rewriter's work of hours must not be in vain for it."""
    appender = history.begin("append")
    appender.append([data_file(1, 9), data_file(10, 19)])
    merged = data_file(1, 19, "merged")
    paths = [file.path for file in appender.manifest.files]
    with history.begin("rewrite") as rewriter:
        appender.append([data_file(20, 29), data_file(30, 39)])
        with pytest.raises(Superseded, match="being rewritten"):
            appender.replace(paths, [merged])
        appender.replace([file.path for file in appender.manifest.files[2:]], [data_file(20, 39, "new")])
        rewriter.replace(paths, [merged])
        rewriter.check_present()
        history.begin("rewrite")
        with pytest.raises(Fenced):
            rewriter.check_present()


def test_of_many_commits_at_once_none_is_lost(history: History) -> None:
    """Appends by one and replacements by another, each on top of whatever the other has done."""
    writer, rewriter = history.begin("append"), history.begin("rewrite")

    def rewrite() -> None:
        for round_ in range(15):
            files = history.newest().files
            if files:
                rewriter.replace([files[0].path], [msgspec.structs.replace(files[0], path=f"day=1/{round_}")])

    thread = threading.Thread(target=rewrite)
    thread.start()
    for seq in range(1, 31):
        writer.append([data_file(seq, seq)])
    thread.join()
    newest = history.newest()
    assert newest.complete() == ((1, 30),)
    assert newest.version == 2 + 30 + newest.generation
    assert history.versions() == list(range(1, newest.version + 1))


def test_a_commit_under_a_number_that_was_cleaned_away_does_not_count(history: History) -> None:
    writer = history.begin("append")
    stale = history.begin("rewrite")
    for seq in range(1, 9):
        writer.append([data_file(seq, seq)])
    history.storage.remove(manifest_name(3))
    newest, versions = history.newest, iter([history.read(2)])
    history.newest = lambda: next(versions, None) or newest()  # type: ignore[method-assign]
    path = history.read(10).files[0].path
    stale.history = history
    with pytest.raises(Superseded):  # it read version 2, where that file is not yet
        stale.replace([path], [data_file(1, 1, "day=1/x")])
    versions = iter([history.read(2)])
    manifest = history.commit(lambda base: msgspec.structs.replace(base, generation=base.generation + 1))
    assert manifest.version == 11 and manifest.complete() == ((1, 8),)
    assert 3 not in history.versions()


def test_a_manifest_that_is_another_streams_is_refused(history: History, tmp_path: Path) -> None:
    history.begin("append")
    other = History(LocalStorage(str(tmp_path)), "payments")
    other.storage.put(manifest_name(1), history.storage.read(manifest_name(1)))
    with pytest.raises(ArchiveDamaged, match="'orders'"):
        other.newest()


def test_an_older_version_is_never_taken_for_the_newest(history: History) -> None:
    writer = history.begin("append")
    newest = writer.append([data_file(1, 10)])
    history.storage.remove(manifest_name(newest.version))
    with pytest.raises(
        ArchiveDamaged,
        match=r"000000000002\.json is gone: version 2 was committed, and the newest that is there is 1",
    ):
        history.newest()
    with pytest.raises(ArchiveDamaged):
        history.begin("append")
    (witness,) = history.storage.entries("_committed")
    history.storage.remove(f"_committed/{witness.name}")
    assert history.newest().version == 1
    history.storage.remove(manifest_name(1))
    assert history.newest().version == 0, "nothing says that there was one"


def test_a_file_is_put_once(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path / "new"))
    assert storage.put("a/b", b"1") and not storage.put("a/b", b"2")
    assert storage.read("a/b") == b"1"
    assert [entry.name for entry in storage.entries("a")] == ["b"]
    storage.move("a/b", "c/d")
    assert storage.size("a/b") is None and storage.checksum("c/d") == "crc32c:90f599e3"
    storage.remove("c")
    storage.remove("c")
    assert storage.entries("c") == []


def test_where_an_archive_can_be(tmp_path: Path) -> None:
    for path in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}"):
        assert storage_of(path).root == str(tmp_path)
    with pytest.raises(LocalError, match="through Spark"):
        storage_of("hdfs://host/archive")
    with pytest.raises(LocalError, match="object store"):
        storage_of("s3a://bucket/archive")
