"""A folder that belongs to one process."""

import asyncio
import os
from functools import partial
from pathlib import Path

import pytest

from qanat.events.errors import LocalError
from qanat.runtime.admin import Admin
from qanat.runtime.config import load
from qanat.runtime.folder_lock import is_locked, lock_folder
from qanat.runtime.metrics import Metrics
from qanat.runtime.node import Node
from qanat.runtime.node_settings import AdminSettings, Settings


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


def test_a_node_that_is_started_twice_is_told_of_its_folder_and_not_of_a_port(tmp_path: Path) -> None:
    """To take another port, as was said, would not have helped."""

    async def start_twice() -> None:
        first = Admin(Metrics(), dict, lambda: None)
        await first.start(AdminSettings(port=0))
        handle = lock_folder(tmp_path)
        flags = {"node.data": str(tmp_path), "admin.port": first.port}
        node = Node(partial(load, Settings, flags=flags))
        try:
            with pytest.raises(
                LocalError, match=r"is in use by another server; give this one another folder"
            ):
                await node.serve()
            os.close(handle)
            with pytest.raises(LocalError, match=r"cannot serve HTTP .* set admin\.port to another"):
                await node.serve()
        finally:
            await first.close()

    asyncio.run(start_twice())
