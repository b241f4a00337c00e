"""Everything on Spark, measured part by part: each is a module `pipeline_…` of its own, which can be run
alone (`--only`)."""

import importlib
import pkgutil
from collections.abc import Callable

import qanat.bench
from qanat.events.errors import LocalError

DESCRIPTION = (
    "streams, ingest, archive, compaction, latency and audit on Spark, each beside what it is compared with"
)
_PREFIX = "pipeline_"


class NoPart(LocalError):
    """There is no such part."""

    exit_code = 2


def parts() -> list[str]:
    """By name, in the order in which they are run."""
    found = [module.name for module in pkgutil.iter_modules(qanat.bench.__path__)]
    return sorted(name.removeprefix(_PREFIX) for name in found if name.startswith(_PREFIX))


def run(rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """One part after the other; each has a Spark of its own."""
    figures: dict[str, float] = {}
    for part in parts():
        figures |= run_only(part, rounds, say)
    return figures


def run_only(part: str, rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    if part not in parts():
        raise NoPart(f"the benchmark pipeline has no part {part!r}; there are {', '.join(parts())}")
    module = importlib.import_module(f"qanat.bench.{_PREFIX}{part}")
    say(f"{part}: {module.DESCRIPTION}")
    figures: dict[str, float] = module.run(rounds, lambda line: say(f"  {line}"))
    return figures
