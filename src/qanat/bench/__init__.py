"""Benchmarks: one module each, with `DESCRIPTION: str` and `run(rounds, say) -> dict[str, float]`.

A figure is the median of the rounds. What it is compared with is measured in the same run on the same machine, so
that a ratio means something wherever it is read.
"""
