"""How fast record files are read into columns, beside a plain loop over the same bytes."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from qanat.bench.reader_figures import beside, in_rounds, rows_per_s
from qanat.capture.url import open_reader

DESCRIPTION = "record files in rows/s of 100 bytes: lines, length-prefixed even and uneven, JSON as columns"
ROWS = 1_000_000
LOOP_SHARE = 5
"""The plain loop reads so small a part of the same file."""
_FILES = 4
_KINDS = {"files": "lines", "files_prefixed": "u32be", "files_uneven": "u32be", "files_json": "jsonl"}
"""Figure → format."""


def run(rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """Medians of the rounds, which all read the same files."""
    folder = Path(tempfile.mkdtemp(prefix="qanat-bench-"))
    try:
        for name in _KINDS:
            _write(folder / name, name)
        return in_rounds(rounds, lambda number: _rates(folder, number), say)
    finally:
        shutil.rmtree(folder)


def _rates(folder: Path, number: int) -> dict[str, float]:
    lines = folder / "files"
    compared = beside(
        "files", "files_loop", lambda: _read(lines, _KINDS["files"]), lambda: _loop(lines), number
    )
    others = {name: form for name, form in _KINDS.items() if name != "files"}
    return compared | {f"{name}_rows_per_s": _read(folder / name, form) for name, form in others.items()}


def _record(kind: str, row: int) -> bytes:
    """100 bytes, with what frames them."""
    match kind:
        case "files":
            return b"%099d\n" % row
        case "files_prefixed":
            return b"\0\0\0\x60%096d" % row
        case "files_uneven":
            size = 66 + row * 7919 % 61
            return size.to_bytes(4, "big") + b"%0*d" % (size, row)
    text = json.dumps({"id": row, "price": row / 8, "name": f"item {row}"})
    return (text[:-1] + ', "text": "').encode().ljust(97, b"x") + b'"}\n'


def _write(folder: Path, kind: str) -> None:
    folder.mkdir()
    share = ROWS // _FILES
    for number in range(_FILES):
        records = (_record(kind, row) for row in range(number * share, (number + 1) * share))
        (folder / f"part-{number}").write_bytes(b"".join(records))


def _read(folder: Path, form: str) -> float:
    with closing(open_reader(f"file://{folder}/part-*", format=form, settle_s=0)) as reader:
        reader.seek("earliest")
        return rows_per_s(reader, ROWS)


def _loop(folder: Path) -> float:
    """Line by line, into tuples of the offset and the line."""
    began = time.perf_counter()
    rows: list[tuple[int, bytes]] = []
    at = 0
    with (folder / "part-0").open("rb") as file:
        for line in file:
            rows.append((at, line[:-1]))
            at += len(line)
            if len(rows) == ROWS // LOOP_SHARE:
                break
    return len(rows) / (time.perf_counter() - began)
