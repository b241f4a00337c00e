"""How files are synced, replaced, made and moved, and in which order that is asked of the system."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qanat.events import durable
from qanat.events.durable import chosen, sync_data


def test_each_system_has_its_way() -> None:
    calls: list[tuple[object, ...]] = []

    def noted(name: str) -> object:
        return lambda *arguments: calls.append((name, *arguments))

    linux = SimpleNamespace(fdatasync=noted("fdatasync"), fsync=noted("fsync"))
    other = SimpleNamespace(fsync=noted("fsync"))
    mac = SimpleNamespace(fcntl=noted("fcntl"), F_FULLFSYNC=51)
    chosen(linux, SimpleNamespace())(7)
    chosen(other, mac)(8)
    chosen(other, SimpleNamespace())(9)
    assert calls == [("fdatasync", 7), ("fcntl", 8, 51), ("fsync", 9)]


def test_this_system_has_one(tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as file:
        file.write(b"1")
        sync_data(file.fileno())


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is asked of the system, in order: (call, name of the file)."""
    made: list[tuple[str, str]] = []

    def name_of(handle: int) -> str:
        return Path(os.readlink(f"/proc/self/fd/{handle}")).name

    def watch(name: str, of: Callable[..., str]) -> None:
        real = getattr(os, name)

        def noted(*arguments: Any, **more: Any) -> Any:
            made.append((name, of(*arguments)))
            return real(*arguments, **more)

        monkeypatch.setattr(os, name, noted)

    for name in ("fsync", "write"):
        watch(name, lambda handle, *_: name_of(handle))
    for name in ("replace", "link", "rename"):
        watch(name, lambda _old, new: Path(new).name)
    watch("mkdir", lambda path, *_: Path(path).name)
    monkeypatch.setattr(durable, "sync_data", lambda handle: made.append(("sync", name_of(handle))))
    return made


def test_bytes_are_synced_before_the_name_and_the_name_before_it_is_told(
    tmp_path: Path, calls: list[tuple[str, str]]
) -> None:
    durable.replace(tmp_path / "x", b"new")
    assert calls == [("write", ".x.new"), ("sync", ".x.new"), ("replace", "x"), ("fsync", tmp_path.name)]
    calls.clear()
    assert durable.make(tmp_path / "y", b"new")
    assert [call for call, _ in calls] == ["write", "sync", "link", "fsync"]
    calls.clear()
    durable.tell(tmp_path / "z", b"new")
    assert [call for call, _ in calls] == ["write", "replace"]


def test_a_folder_stands_in_its_parent_before_anything_is_in_it(
    tmp_path: Path, calls: list[tuple[str, str]]
) -> None:
    durable.make_folder(tmp_path / "a" / "b")
    above, here = tmp_path.parent.name, tmp_path.name
    assert calls == [("fsync", above), ("mkdir", "a"), ("fsync", here), ("mkdir", "b"), ("fsync", "a")]


def test_a_folder_whose_maker_was_killed_is_synced_by_the_next(
    tmp_path: Path, calls: list[tuple[str, str]]
) -> None:
    (tmp_path / "a").mkdir()
    calls.clear()
    durable.make_folder(tmp_path / "a")
    assert calls == [("fsync", tmp_path.name)]


def test_a_file_that_is_there_is_left(tmp_path: Path) -> None:
    assert durable.make(tmp_path / "x", b"one") and not durable.make(tmp_path / "x", b"two")
    assert (tmp_path / "x").read_bytes() == b"one"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("act", [durable.replace, durable.tell, durable.make])
def test_without_room_the_old_file_stays_and_the_error_names_it(
    tmp_path: Path, act: Callable[[Path, bytes], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    if act is not durable.make:
        path.write_bytes(b"old")

    def full(_handle: int, _data: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="space") as caught:
        act(path, b"new")
    assert caught.value.filename == str(path)
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == (
        [("x", b"old")] if path.exists() else []
    )


def test_moved_and_removed_names_are_synced(tmp_path: Path, calls: list[tuple[str, str]]) -> None:
    for name in ("from", "to"):
        (tmp_path / name).mkdir()
    (tmp_path / "from" / "x").touch()
    calls.clear()
    durable.move(tmp_path / "from" / "x", tmp_path / "to" / "y")
    durable.remove(tmp_path / "to" / "y")
    assert calls == [("rename", "y"), ("fsync", "to"), ("fsync", "from"), ("fsync", "to")]
