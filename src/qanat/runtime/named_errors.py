"""Errors of the system in words."""


def sentence(error: OSError) -> str:
    """What is wrong, and with which file."""
    what = error.strerror or str(error) or type(error).__name__
    return f"{what}: {error.filename}" if error.filename is not None else what
