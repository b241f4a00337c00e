"""`python -m qanat` is the command line."""

import sys

from qanat.cli.main import main
from qanat.runtime.lean import LEAN_COMMANDS, do_without_pandas

if (
    sys.argv[1:2] and sys.argv[1] in LEAN_COMMANDS
):  # not only for the main process: its workers come by here, too
    do_without_pandas()

if __name__ == "__main__":
    sys.exit(main())
