"""Addresses of servers: given, learned, reached."""

from qanat.client.endpoints import Endpoints
from qanat.runtime.url import Url

_A, _B, _C, _ALIAS = Url("a", 1), Url("b", 2), Url("c", 3), Url("alias", 1)


def test_what_is_given_comes_first_and_what_is_learned_is_replaced() -> None:
    endpoints = Endpoints((_A, _B))
    endpoints.learn({"x": str(_B), "y": str(_C), "z": "http://no"})
    assert endpoints.besides(()) == [_A, _B, _C]
    endpoints.learn({"x": str(_A)})
    assert endpoints.besides(()) == [_A, _B]
    assert len(endpoints) == 2
    assert str(endpoints) == "qanat://a:1,b:2"


def test_a_server_is_looked_for_where_it_was_reached_and_then_where_it_says() -> None:
    endpoints = Endpoints((_ALIAS,))
    endpoints.reached("x", _ALIAS)
    endpoints.learn({"x": str(_A)})
    assert endpoints.besides(["x"]) == [_A]
    assert endpoints.pop("x") == _ALIAS
    assert endpoints.pop("x") == _A
    assert endpoints.pop("nobody") is None
