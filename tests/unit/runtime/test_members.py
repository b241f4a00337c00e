"""Names that say where a member listens."""

from __future__ import annotations

import pytest

from qanat.runtime.members import member_name, member_url, with_members
from qanat.runtime.url import Url


@pytest.mark.parametrize("host", ["10.0.0.7", "::1", "mesh.example"])
def test_a_name_leads_back_to_its_place(host: str) -> None:
    assert member_url(member_name("3fa9c1d2", host, 41234)) == Url(host, 41234)


@pytest.mark.parametrize(
    "name", ["eu/proxy-1", "a@", "@10.0.0.7:1", "a@10.0.0.7", "a@10.0.0.7:0", "a@:7", "a@h:99999", "a@b c:7"]
)
def test_other_names_lead_nowhere(name: str) -> None:
    assert member_url(name) is None


def test_a_book_is_asked_before_the_name() -> None:
    book = with_members({"eu/proxy-1": Url("h", 1), "a@x:2": Url("y", 3)}.get)
    assert book("eu/proxy-1") == Url("h", 1)
    assert book("a@x:2") == Url("y", 3)
    assert book("b@x:2") == Url("x", 2)
    assert book("nobody") is None
