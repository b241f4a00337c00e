"""What a power cut would leave: system calls of real processes, recorded by strace, and a disk that forgets
what was not synced.

A process that is killed leaves all it wrote; only the system's end shows what was never synced. So a program
(with all processes that it starts) runs under strace, says by `mark` what it was promised, and
`Recording.cut` makes the folder that would be found if the power went away before any one call. Three disks
are possible, and a program must bear all of them:

- `FORGETS`: bytes and names that no sync covered are gone;
- `NAMES`: all names are there, and bytes that no sync covered are not (so a file that was renamed too early
  is empty);
- `KEEPS`: everything is there, as after `kill -9`.
"""

from __future__ import annotations

import enum
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

_CALLS = (
    "openat,creat,write,pwrite64,writev,pwritev,pwritev2,truncate,ftruncate,fallocate,rename,renameat,renameat2,"
    "link,linkat,unlink,unlinkat,rmdir,mkdir,mkdirat,fsync,fdatasync,copy_file_range,sendfile"
)
_MARK = "/power-cut-mark/"
_LINE = re.compile(r"^(\d+) +(?:<\.\.\. \w+ resumed>)?(.*)$")
_CALL = re.compile(r"^(\w+)\((.*)\) += (-?\d+)")
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_FD = re.compile(r"^(?:AT_FDCWD|-?\d+)<([^>]*)>")


class Disk(enum.Enum):
    FORGETS = enum.auto()
    NAMES = enum.auto()
    KEEPS = enum.auto()


def mark(what: str) -> None:
    """By the program: it was told so, and relies on it from here on."""
    try:
        os.rmdir(_MARK + what)
    except FileNotFoundError:
        pass


def record(folder: Path, program: str, *arguments: str) -> Recording:
    """Runs a function of the tests, named `module:function`, with a fresh folder and the arguments."""
    trace, root = folder / "trace", folder / "root"
    root.mkdir()
    module, name = program.split(":")
    run = f"import sys; from {module} import {name}; {name}(*sys.argv[1:])"
    command = ["strace", "-f", "-y", "-xx", "-s", str(1 << 24), "--seccomp-bpf", "-e", f"trace={_CALLS}"]
    command += ["-e", "signal=none", "-o", str(trace), sys.executable, "-c", run, str(root), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if "ptrace" in done.stderr:
        pytest.skip("this machine does not let us trace processes")
    assert done.returncode == 0, done.stderr[-2000:]
    return Recording(root, list(_calls(trace, root)))


@dataclass
class Call:
    name: str
    text: str
    result: int
    begun: int
    """Calls that had ended before it began."""


def _calls(trace: Path, root: Path) -> Iterator[Call]:
    """Those that concern the folder, in the order in which they ended; failed ones are of no account."""
    unfinished: dict[str, tuple[str, int]] = {}
    wanted, count = "".join(f"\\x{byte:02x}" for byte in str(root).encode()), 0
    marked = "".join(f"\\x{byte:02x}" for byte in _MARK.encode())
    with trace.open(encoding="ascii", errors="replace") as lines:
        for line in lines:
            pid, _, rest = line.rstrip("\n").partition(" ")
            rest = rest.lstrip()
            if rest.endswith("<unfinished ...>"):
                unfinished[pid] = (rest.removesuffix("<unfinished ...>").rstrip(), count)
                continue
            begun = count
            if rest.startswith("<... "):
                before, begun = unfinished.pop(pid, ("", count))
                rest = before + rest.partition("resumed>")[2].lstrip()
            if wanted not in rest and marked not in rest:
                continue
            found = _CALL.match(rest)
            if found is None or (int(found[3]) < 0 and marked not in rest):
                continue
            yield Call(found[1], found[2] + rest[found.end() :], int(found[3]), begun)
            count += 1


def _plain(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


@dataclass(eq=False)
class _File:
    live: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    history: dict[int, bytes] = field(default_factory=dict)
    cursor: int = 0


@dataclass(eq=False)
class _Folder:
    live: dict[str, _File | _Folder] = field(default_factory=dict)
    durable: dict[str, _File | _Folder] = field(default_factory=dict)


_Change = list[tuple[_Folder, str, "_File | _Folder | None"]]


class Recording:
    """Calls of one program, and the disk after any of them."""

    def __init__(self, root: Path, calls: list[Call]) -> None:
        self.root, self.calls = root, calls

    @property
    def marks(self) -> list[tuple[int, str]]:
        """What was promised, and before which call."""
        found = []
        for at, call in enumerate(self.calls):
            path = self._paths(call)
            if path and path[0].startswith(_MARK):
                found.append((at, path[0].removeprefix(_MARK)))
        return found

    def promised(self, at: int) -> list[str]:
        return [what for when, what in self.marks if when < at]

    def cut(self, at: int, disk: Disk, into: Path) -> Path:
        """The folder as it is found when the power went before call number `at`."""
        model = _Model(str(self.root))
        for number, call in enumerate(self.calls[:at]):
            model.do(number, call, self._paths(call))
        model.write(model.root, into, disk)
        return into

    def check_model(self) -> None:
        """A disk that forgets nothing has what the real one has: no way of writing was overlooked."""
        model = _Model(str(self.root))
        for number, call in enumerate(self.calls):
            model.do(number, call, self._paths(call))
        assert _listing(model.root) == _real(self.root)

    @staticmethod
    def _paths(call: Call) -> list[str]:
        """The names in the arguments, whole."""
        if call.name in (
            "write",
            "pwrite64",
            "writev",
            "pwritev",
            "pwritev2",
            "ftruncate",
            "fallocate",
            "fsync",
            "fdatasync",
        ):
            found = _FD.match(call.text)
            return [_plain(found[1]).decode()] if found else []
        paths: list[str] = []
        at = 0
        while len(paths) < 2 and (string := _STRING.search(call.text, at)):
            before = call.text[at : string.start()].lstrip(", ")
            base = _FD.match(before)
            path = _plain(string[1]).decode("utf-8", "replace")
            paths.append(
                path if path.startswith("/") or base is None else f"{_plain(base[1]).decode()}/{path}"
            )
            at = string.end()
        return paths


class _Model:
    def __init__(self, root: str) -> None:
        self.prefix, self.root = root, _Folder()
        self.pending: list[_Change] = []

    # --- names

    def _at(self, path: str) -> tuple[_Folder, str] | None:
        """Folder and name; None if it is not below the root."""
        if not path.startswith(self.prefix + "/"):
            return None
        *folders, name = path[len(self.prefix) + 1 :].split("/")
        at = self.root
        for each in folders:
            below = at.live.get(each)
            if not isinstance(below, _Folder):
                return None
            at = below
        return at, name

    def _find(self, path: str) -> _File | _Folder | None:
        if path == self.prefix:
            return self.root
        at = self._at(path)
        return None if at is None else at[0].live.get(at[1])

    def _change(self, *changes: tuple[str, _File | _Folder | None]) -> None:
        made: _Change = []
        for path, what in changes:
            at = self._at(path)
            if at is None:
                continue
            folder, name = at
            if what is None:
                folder.live.pop(name, None)
            else:
                folder.live[name] = what
            made.append((folder, name, what))
        self.pending.append(made)

    def _sync_folder(self, folder: _Folder) -> None:
        kept = []
        for change in self.pending:
            if any(each is folder for each, _, _ in change):
                for each, name, what in change:
                    if what is None:
                        each.durable.pop(name, None)
                    else:
                        each.durable[name] = what
            else:
                kept.append(change)
        self.pending = kept

    # --- calls

    def do(self, number: int, call: Call, paths: list[str]) -> None:
        if not paths or paths[0].startswith(_MARK):
            return
        what = self._find(paths[0])
        match call.name:
            case "openat" | "creat":
                self._open(number, call, paths[0], what)
            case "write" | "writev" if isinstance(what, _File):
                data = b"".join(map(_plain, _STRING.findall(call.text)))[: call.result]
                what.live[what.cursor : what.cursor + len(data)] = data
                what.cursor += len(data)
                what.history[number] = bytes(what.live)
            case "pwrite64" | "pwritev" | "pwritev2" if isinstance(what, _File):
                data = b"".join(map(_plain, _STRING.findall(call.text)))[: call.result]
                at = int(re.findall(r", (\d+)", call.text[call.text.rindex('"') :])[-1])
                what.live.extend(bytes(max(0, at - len(what.live))))
                what.live[at : at + len(data)] = data
                what.history[number] = bytes(what.live)
            case "ftruncate" | "truncate" if isinstance(what, _File):
                size = int(re.findall(r", (\d+)", call.text)[-1])
                del what.live[size:]
                what.live.extend(bytes(size - len(what.live)))
                what.history[number] = bytes(what.live)
            case "fallocate" if isinstance(what, _File) and "KEEP_SIZE" not in call.text:
                raise AssertionError(f"a way of writing that is not modelled: {call}")
            case "copy_file_range" | "sendfile":
                raise AssertionError(f"a way of writing that is not modelled: {call}")
            case "fsync" | "fdatasync":
                if isinstance(what, _Folder):
                    self._sync_folder(what)
                elif what is not None:
                    before = [each for when, each in what.history.items() if when < call.begun]
                    what.durable = before[-1] if before else what.durable
            case "rename" | "renameat" | "renameat2":
                moved = what
                self._change((paths[0], None), (paths[1], moved))
            case "link" | "linkat":
                self._change((paths[1], what if what is not None else _File()))
            case "unlink" | "unlinkat" | "rmdir":
                self._change((paths[0], None))
            case "mkdir" | "mkdirat":
                self._change((paths[0], _Folder()))
            case _:
                pass

    def _open(self, number: int, call: Call, path: str, what: _File | _Folder | None) -> None:
        if isinstance(what, _Folder):
            return
        if what is None:
            if "O_CREAT" not in call.text:
                return
            what = _File()
            self._change((path, what))
        if "O_TRUNC" in call.text and what.live:
            what.live.clear()
            what.history[number] = b""
        what.cursor = len(what.live) if "O_APPEND" in call.text else 0

    # --- what is left

    def write(self, folder: _Folder, into: Path, disk: Disk) -> None:
        into.mkdir()
        for name, what in (folder.durable if disk is Disk.FORGETS else folder.live).items():
            if isinstance(what, _Folder):
                self.write(what, into / name, disk)
            else:
                (into / name).write_bytes(what.live if disk is Disk.KEEPS else what.durable)


def _listing(folder: _Folder, at: str = "") -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name, what in folder.live.items():
        if isinstance(what, _Folder):
            found |= {f"{at}{name}/": b""} | _listing(what, f"{at}{name}/")
        else:
            found[at + name] = bytes(what.live)
    return found


def _real(folder: Path, at: str = "") -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for path in folder.iterdir():
        if path.is_dir():
            found |= {f"{at}{path.name}/": b""} | _real(path, f"{at}{path.name}/")
        elif path.is_file():
            found[at + path.name] = path.read_bytes()
    return found
