"""How files are synced on systems that are not this one."""

from pathlib import Path
from types import SimpleNamespace

from qanat.events.sync import chosen, sync_data


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
