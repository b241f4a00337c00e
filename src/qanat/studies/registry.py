"""The studies that can be run, and what each of them reports.

A study repeats a paper's experiment and judges each of the paper's claims by a rule that is written down in
code. A claim that does not hold is a finding, not a failure of the study.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

import msgspec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Say = Callable[[str], None]


class Claim(msgspec.Struct, frozen=True):
    """One sentence of the paper beside what came out here."""

    claim: str
    paper: float | str
    measured: float | str
    holds: bool


class Report(msgspec.Struct, frozen=True):
    """What a study found. `notes` are lines for people: what else one should know to read the claims."""

    study: str
    claims: list[Claim]
    figures: list[str]
    notes: list[str] = []


class Study(NamedTuple):
    """`module` has a function `run(*, quick, out, say) -> Report`; it is imported only when it is asked
    for."""

    about: str
    module: str
    on_spark: bool = False
    """Whether the module also has `run_on_spark(spark, *, quick, events, out, say) -> Report`."""


class Runnable(Protocol):
    def run(self, *, quick: bool, out: Path, say: Say) -> Report: ...

    def run_on_spark(
        self, spark: SparkSession, *, quick: bool, events: int | None, out: Path, say: Say
    ) -> Report: ...


STUDIES: dict[str, Study] = {
    "S12": Study(
        "how many events a second one, two and three real proxies carry (Sprinkler, Fig. 4)",
        "qanat.studies.s12.study",
    ),
    "S13": Study(
        "three simulated regions of 1,000 clients: fanout, shuffle time, load, a cut link (Sprinkler, Fig. 5"
        " to 7)",
        "qanat.studies.s13.study",
    ),
    "S14": Study(
        "how much of a stream garbage collection by key leaves (Sprinkler, Fig. 9 and 10)",
        "qanat.studies.s14.study",
        on_spark=True,
    ),
    "W15": Study(
        "a publisher, its caravans and its subscribers, for real: throughput, latency, failures, balance"
        " (Wormhole, Fig. 4 to 11)",
        "qanat.studies.w15.study",
    ),
}


def load(identifier: str) -> Runnable:
    return cast(Runnable, importlib.import_module(STUDIES[identifier].module))
