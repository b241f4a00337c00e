"""Every log reader beside the bare library, or a plain loop, over the same log in the same run.

Each datastore has a module of its own (`readers_mariadb`, …), which can be run alone. Figures:
`<datastore>_rows_per_s`, `<datastore>_ratio` to what it is compared with, and for databases the time from a
commit to its update, `<datastore>_latency_ms_p50` and `_p99`.
"""

import importlib
import pkgutil
from collections.abc import Callable

import qanat.bench

DESCRIPTION = (
    "log readers of MariaDB, PostgreSQL, RocksDB and files in rows/s beside the bare libraries; commit to"
    " update"
)
_PREFIX = "readers_"


def modules() -> list[str]:
    """The benchmarks of single readers."""
    found = [module.name for module in pkgutil.iter_modules(qanat.bench.__path__)]
    return sorted(name for name in found if name.startswith(_PREFIX))


def run(rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """One datastore after the other, so that their servers do not take the cores from each other."""
    figures: dict[str, float] = {}
    for name in modules():
        say(name.removeprefix(_PREFIX))
        try:
            figures |= importlib.import_module(f"qanat.bench.{name}").run(
                rounds, lambda line: say(f"  {line}")
            )
        except FileNotFoundError as error:
            say(f"  left out: there is no {error.filename} on this machine")
    return figures
