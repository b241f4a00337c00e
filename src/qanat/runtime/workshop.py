"""What is in a checkout of the repository and in no wheel: the package `qanat_workshop`."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from qanat.events.errors import LocalError

PACKAGE = "qanat_workshop"


class OnlyInCheckout(LocalError):
    """What was asked for needs a part of the repository that is not installed."""

    exit_code = 3


def has_workshop() -> bool:
    """Whether this package runs from a checkout."""
    return find_spec(PACKAGE) is not None


def workshop(module: str, what: str) -> ModuleType:
    """A module of the workshop; without a checkout `OnlyInCheckout` says that `what` is only there."""
    if not has_workshop():
        raise OnlyInCheckout(f"{what} only in a checkout of the repository; run ./qanat there")
    return import_module(f"{PACKAGE}.{module}")
