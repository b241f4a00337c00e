"""A real PostgreSQL for tests."""

from qanat.bench.postgres_server import BIN, PostgresServer, free_port, postgres_server

__all__ = ["BIN", "PostgresServer", "free_port", "postgres_server"]
