"""Filters as Spark's own columns."""
