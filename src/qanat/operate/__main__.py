"""The supervisor's process."""

import sys

from qanat.runtime.lean import do_without_pandas

if __name__ == "__main__":
    do_without_pandas()
    from qanat.operate.supervisor import main

    sys.exit(main())
