"""A driver that runs commands of ours one after another on one Spark session, as one line of JSON each tells it.

`{"words": […], "out": path, "err": path}` in, `{"code": 0}` out. A driver of its own for each command would cost more
than all that the commands do.
"""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from qanat.cli.main import main


def serve() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        with Path(asked["out"]).open("w") as out, Path(asked["err"]).open("w") as err:
            with redirect_stdout(out), redirect_stderr(err):
                code = main(asked["words"])
        print(json.dumps({"code": code}), flush=True)


if __name__ == "__main__":
    serve()
