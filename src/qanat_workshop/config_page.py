"""Writes the reference of all settings of some kinds of node, from their structs, as Markdown.

`python -m qanat_workshop.config_page module:Struct module:Struct… > docs/configuration.md`
"""

import inspect
import sys
from importlib import import_module

import msgspec

from qanat.runtime.fields import describe

_HEAD = """\
# Configuration

A node starts without any setting: every default below has its reason beside it. You change only what your
machine or your load needs, in a file, in the environment or on the command line. A mistake stops the start
with one sentence that names the key and its origin.

```text
 default  ──►  TOML file  ──►  environment  ──►  flag         the last one wins
               SIGHUP reads file and environment again
```

```sh
printf '[transport]\\nheartbeat_ms = 500\\n' > server.toml
QANAT_LOGGING__FORMAT=json ./qanat serve --config server.toml --set logging.level=debug
```

| origin | form |
|---|---|
| file | `[transport]`, and below it `heartbeat_ms = 500` |
| environment | `QANAT_TRANSPORT__HEARTBEAT_MS=500`: two underscores for each dot, a list with commas |
| flag | `--set transport.heartbeat_ms=500` |

On SIGHUP a node reads its file and its environment again. Settings with "yes" in the column SIGHUP change at
once; the node reports the others as waiting for a restart. A file with a mistake changes nothing.

The address of a node is `qanat://host:port`. You may leave out the scheme, and the port, which is then 7411.
Write an IPv6 address in brackets.

The first sections are of a stream server (`qanat serve`). Each later part lists the further settings of one
kind of process: a replica, a coordinator, a publisher, the links, and jobs on Spark. The code generates this
page, and a test compares them:

```sh
python -m qanat_workshop.config_page {kinds} > docs/configuration.md
```

"""


def page(*kinds: str) -> str:
    """The page of `kinds`, each as `module:Struct`; a section that an earlier kind has is not repeated."""
    known: set[type[msgspec.Struct]] = set()
    parts = [_HEAD.replace("{kinds}", " \\\n  ".join(kinds))]
    for number, kind in enumerate(kinds):
        module, _, name = kind.partition(":")
        root: type[msgspec.Struct] = getattr(import_module(module), name)
        if number:
            parts.append(f"\n# {name}\n\n{inspect.cleandoc(root.__doc__ or '')}\n\n")
        parts.append(describe(root, known))
    return "".join(parts)


if __name__ == "__main__":
    print(page(*sys.argv[1:]), end="")
