"""Benchmarks: one module each, with `DESCRIPTION: str` and `run(rounds, say) -> dict[str, float]`.

A figure is the median of the rounds, and its spread is printed with it. What it is compared with is measured
in the same run on the same machine, in turns with it and in short slices (`figures.in_turns`), so that a
ratio means something wherever it is read.
"""
