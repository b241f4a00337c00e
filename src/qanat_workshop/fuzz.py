"""Mutated logs against the decoders: `python -m qanat_workshop.fuzz NAME --inputs 1000000 --seed 1`.

A decoder takes bytes alone. Whatever they are, it gives updates or raises a `RemoteError`; anything else is
found here, and so is an input for which it takes more memory than the limit. Every input follows from the
seed and its number, so that what is found can be run again (`--only NUMBER`) and kept as a test. A decoder is
a module with `corpus() -> list[bytes]`, real logs in small pieces, and `decode_file(bytes)`.
"""

import argparse
import importlib
import resource
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import NamedTuple

from qanat.events.errors import RemoteError

MODULES = {
    "events": "qanat_workshop.samples.events",
    "mariadb": "qanat_workshop.samples.mariadb",
    "postgres": "qanat_workshop.samples.postgres",
    "rocksdb": "qanat_workshop.samples.rocksdb",
    "files": "qanat_workshop.samples.files",
}
_BYTES = (0, 1, 2, 0x0A, 0x20, 0x22, 0x2C, 0x30, 0x5B, 0x7B, 0x7F, 0x80, 0xFA, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF)
_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**63 - 1, 2**64 - 1)
_PIECE = 20_000
"""Inputs that a process takes at once."""


class Found(NamedTuple):
    """An input that broke a decoder."""

    number: int
    error: str
    data: bytes


class Report(NamedTuple):
    """What came of some inputs."""

    inputs: int
    refused: int
    grown_bytes: int
    """By how much the process grew at most, from before the first input."""
    found: list[Found]


def target(name: str) -> tuple[list[bytes], Callable[[bytes], object]]:
    """A decoder's corpus and what takes bytes."""
    module = importlib.import_module(MODULES[name])
    return module.corpus(), module.decode_file


def mutated(corpus: Sequence[bytes], seed: int, number: int) -> bytes:
    """The input of this number: one of the corpus with one to six changes; every 64th is the original."""
    rng = Random(f"{seed}/{number}")
    data = bytearray(rng.choice(corpus))
    if number % 64 == 0:
        return bytes(data)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4, 6))):
        _change(rng, data, corpus)
    return bytes(data)


def _change(rng: Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    size = len(data)
    at = rng.randrange(size) if size else 0
    match rng.randrange(10) if size else 7:
        case 0 | 1:
            data[at] ^= 1 << rng.randrange(8)
        case 2 | 3:
            data[at] = rng.choice(_BYTES)
        case 4:
            data[at] = (data[at] + rng.choice((-1, 1))) & 0xFF
        case 5:  # a length or a count that cannot be
            width = rng.choice((1, 2, 3, 4, 8))
            number = (rng.choice(_NUMBERS) & ((1 << 8 * width) - 1)).to_bytes(
                width, rng.choice(("little", "big"))
            )
            data[at : at + width] = number
        case 6:
            del data[at : at + rng.choice((1, 2, 4, 16, 64))]
        case 7:
            data[at:at] = rng.randbytes(rng.choice((1, 2, 4, 16, 64)))
        case 8:  # a piece of another log, or of this one
            other = rng.choice(corpus)
            start = rng.randrange(len(other)) if other else 0
            data[at:at] = other[start : start + rng.choice((4, 32, 256, 4096))]
        case _:
            del data[at:]


def run(name: str, seed: int, first: int, count: int, limit_bytes: int) -> Report:
    """Decodes so many inputs, from number `first` on, in this process."""
    corpus, decode = target(name)
    for data in corpus:  # what is loaded and built once is not an input's doing
        decode(data)
    _confine(limit_bytes)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused, found = 0, []
    for number in range(first, first + count):
        data = mutated(corpus, seed, number)
        try:
            decode(data)
        except RemoteError:
            refused += 1
        except Exception:  # whatever else a decoder lets through is what is looked for here
            found.append(Found(number, traceback.format_exc(limit=-4), data))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return Report(count, refused, grown * 1024, found)


def _confine(limit_bytes: int) -> None:
    """Beyond the limit an allocation fails, so that a decoder that asks for too much is found by the
    error."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + limit_bytes, resource.getrlimit(resource.RLIMIT_AS)[1]))


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m qanat_workshop.fuzz", description="Mutated logs against a decoder."
    )
    parser.add_argument("name", choices=sorted(MODULES))
    parser.add_argument("--inputs", type=int, default=100_000, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes at once (default: 1)")
    parser.add_argument(
        "--only", type=int, metavar="NUMBER", help="decode this input alone, and show what comes of it"
    )
    parser.add_argument(
        "--limit-mb", type=int, default=256, help="memory that inputs may take (default: 256)"
    )
    parser.add_argument(
        "--save", type=Path, metavar="FOLDER", help="write inputs that break the decoder there"
    )
    args = parser.parse_args(words)
    if args.only is not None:
        corpus, decode = target(args.name)
        print(decode(mutated(corpus, args.seed, args.only)))
        return 0
    began = time.monotonic()
    pieces = [
        (args.name, args.seed, first, min(_PIECE, args.inputs - first), args.limit_mb << 20)
        for first in range(0, args.inputs, _PIECE)
    ]
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        reports = []
        for work in [pool.submit(run, *piece) for piece in pieces]:
            reports.append(work.result())
            if sys.stderr.isatty():
                print(f"\r{sum(report.inputs for report in reports):,}", end=" ", file=sys.stderr, flush=True)
    found = [one for report in reports for one in report.found]
    for one in found[:20]:
        print(f"input {one.number}: {one.error}", file=sys.stderr)
        if args.save is not None:
            args.save.mkdir(parents=True, exist_ok=True)
            (args.save / f"{args.name}-{args.seed}-{one.number}.bin").write_bytes(one.data)
    print(
        f"{args.name}: {sum(report.inputs for report in reports):,} inputs with seed {args.seed} in"
        f" {time.monotonic() - began:.0f} s; {sum(report.refused for report in reports):,} refused,"
        f" {len(found)} broke the decoder; memory grew by at most"
        f" {max((report.grown_bytes for report in reports), default=0) / 1e6:.0f} MB"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
