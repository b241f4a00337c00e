"""Every kind of process can be run, and reads what the table says of it."""

from __future__ import annotations

import msgspec
import pytest

from qanat.operate.file import Deployment
from qanat.operate.kinds import KINDS, PASSED_ON, readers
from qanat.runtime.node import Node


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_a_node_with_settings_that_have_its_sections(kind: str) -> None:
    entry = KINDS[kind]
    assert issubclass(entry.node_type(), Node)
    fields = {field.name for field in msgspec.structs.fields(entry.settings_type())}
    assert fields >= {"node", "admin", *entry.sections}


def test_what_is_passed_on_stands_in_a_deployments_file_and_is_read_by_somebody() -> None:
    fields = {field.name for field in msgspec.structs.fields(Deployment)}
    assert set(PASSED_ON) <= fields
    assert all(readers(section) for section in PASSED_ON)
    assert readers("raft") == {"coordinator"}
