"""What `spark-submit` starts: the command line, with the master and the settings that it was submitted with.

    spark-submit --master spark://host:7077 --py-files qanat.zip submit.py study S14 --spark

Java calls it with the folder of this file in front of the path, where modules of ours would hide others' of
the same name.
"""

import sys
from pathlib import Path

sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != Path(__file__).resolve().parent]

from qanat.cli.main import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
