"""The script for `spark-submit`: the command line, with the master and the settings of spark-submit.

    spark-submit --master spark://host:7077 --py-files qanat.zip submit.py study S14 --spark

Java puts the folder of this file in front of the path, where its modules would hide others of the same name.
"""

import sys
from pathlib import Path

sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != Path(__file__).resolve().parent]

from qanat.cli.main import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
