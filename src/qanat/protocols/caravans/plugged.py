"""Strategies of a user's own, by the name of their class."""

from importlib import import_module
from typing import Any

from qanat.events.errors import LocalError


def plugged(path: str, what: str) -> Any:
    """What `module:Class` names; the module is looked for where Python looks (PYTHONPATH)."""
    module, _, name = path.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise LocalError(
            f"the {what} {path!r} cannot be loaded: {error}; write module:Class, and put the module where"
            " PYTHONPATH leads"
        ) from None
