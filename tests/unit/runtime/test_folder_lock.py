"""A folder that belongs to one process."""

import os
from pathlib import Path

import pytest

from qanat.events.errors import LocalError
from qanat.runtime.folder_lock import is_locked, lock_folder


def test_a_folder_is_had_by_one_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    assert not is_locked(folder)
    handle = lock_folder(folder)
    assert is_locked(folder)
    with pytest.raises(LocalError, match=r"state is taken"):
        lock_folder(folder, "is taken")
    os.close(handle)
    assert not is_locked(folder)
    os.close(lock_folder(folder))
