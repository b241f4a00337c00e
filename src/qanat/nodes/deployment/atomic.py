"""Files that are replaced whole."""

import os
import tempfile
from pathlib import Path


def put(path: Path, data: bytes) -> None:
    """Replaces a file: a reader, or who comes after a crash, sees the old one or the new one."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
