"""One module per command, imported only when that command is asked for.

Each has `EXAMPLES: str`, `add_arguments(parser)` and `run(args) -> int`, the exit code.
"""
