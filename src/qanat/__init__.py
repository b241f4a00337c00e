"""Qanat carries every change from a datastore's log to every process that must know of it.

This module is imported by every command and by every Spark worker, so it holds the version and nothing else;
applications import `qanat.client`.
"""

__version__ = "0.1.0"
